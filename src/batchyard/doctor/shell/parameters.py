"""${name%pattern}, ${name,,}, ${name/this/that}: what becomes of a value. Pure."""

from __future__ import annotations

import re
from fnmatch import translate

#: longer values are not looked through for patterns
MAX_LENGTH = 1_000

DEFAULTS = frozenset({":-", "-", ":=", "="})
ASSIGNS = frozenset({":=", "="})
INSTEAD = frozenset({":+", "+"})
_LETTERS = {",,": str.lower, "^^": str.upper}
_SLICE = re.compile(r"[ \t]*(\d{1,4})[ \t]*(?::[ \t]*(\d{1,4}))?[ \t]*")


def changed(value: str, operator: str, operand: str) -> str | None:
    """None where it cannot be said."""
    if operator in _LETTERS:
        return _LETTERS[operator](value)
    if operator in (",", "^"):
        return (value[:1].lower() if operator == "," else value[:1].upper()) + value[1:]
    if operator in ("", ":?", "?"):
        return value
    if len(value) > MAX_LENGTH or len(operand) > MAX_LENGTH:
        return None
    if operator in ("#", "##", "%", "%%"):
        return _trimmed(value, operator, operand)
    if operator in ("/", "//"):
        this, _, that = operand.partition("/")
        pattern = translate(this).removesuffix(r"\Z")
        return re.sub(pattern, lambda _: that, value, count=operator == "/") if this else value
    if operator == ":" and (form := _SLICE.fullmatch(operand)):
        start = int(form[1])
        return value[start : start + int(form[2])] if form[2] else value[start:]
    return None


def _trimmed(value: str, operator: str, pattern: str) -> str:
    """Without the shortest or the longest beginning, or end, that fits the pattern."""
    form = re.compile(translate(pattern))
    is_longest = len(operator) == 2
    if operator[0] == "#":
        cuts = range(len(value), -1, -1) if is_longest else range(len(value) + 1)
        return next((value[cut:] for cut in cuts if form.match(value[:cut])), value)
    cuts = range(len(value) + 1) if is_longest else range(len(value), -1, -1)
    return next((value[:cut] for cut in cuts if form.match(value[cut:])), value)
