"""Operators of parameter expansions: ${name%pattern}, ${name,,}, ${name/pattern/text}. Pure."""

from __future__ import annotations

import re
from fnmatch import translate

#: patterns are not applied to longer values
MAX_LENGTH = 1_000

#: operators whose operand is used if the variable is not set
DEFAULTS = frozenset({":-", "-", ":=", "="})
#: operators that also set the variable
ASSIGNS = frozenset({":=", "="})
#: operators whose operand is used if the variable is set
ALTERNATIVES = frozenset({":+", "+"})
_LETTER_CASES = {",,": str.lower, "^^": str.upper}
_SLICE = re.compile(r"[ \t]*(\d{1,4})[ \t]*(?::[ \t]*(\d{1,4}))?[ \t]*")


def apply(value: str, operator: str, operand: str) -> str | None:
    """Return the value that the expansion has; None if it is unknown."""
    if operator in _LETTER_CASES:
        return _LETTER_CASES[operator](value)
    if operator in (",", "^"):
        return _LETTER_CASES[operator * 2](value[:1]) + value[1:]
    if operator in ("", ":?", "?"):
        return value
    if len(value) > MAX_LENGTH or len(operand) > MAX_LENGTH:
        return None
    if operator in ("#", "##", "%", "%%"):
        return _trim(value, operator, operand)
    if operator in ("/", "//"):
        return _substitute(value, operand, is_first_only=operator == "/")
    return _slice(value, operand) if operator == ":" else None


def _slice(value: str, operand: str) -> str | None:
    """Return the part of the value that ${name:start:length} names; None for other forms."""
    match = _SLICE.fullmatch(operand)
    if not match:
        return None
    start = int(match[1])
    return value[start : start + int(match[2])] if match[2] else value[start:]


def _substitute(value: str, operand: str, is_first_only: bool) -> str:
    glob, _, replacement = operand.partition("/")
    if not glob:
        return value
    pattern = translate(glob).removesuffix(r"\Z")
    return re.sub(pattern, lambda _: replacement, value, count=is_first_only)


def _trim(value: str, operator: str, glob: str) -> str:
    """Remove the shortest or the longest beginning, or end, that matches the pattern."""
    pattern = re.compile(translate(glob))
    is_longest = len(operator) == 2
    if operator[0] == "#":
        cuts = range(len(value), -1, -1) if is_longest else range(len(value) + 1)
        return next((value[cut:] for cut in cuts if pattern.match(value[:cut])), value)
    cuts = range(len(value) + 1) if is_longest else range(len(value), -1, -1)
    return next((value[:cut] for cut in cuts if pattern.match(value[cut:])), value)
