"""Words -> the texts they may come to, as far as the script itself says. Pure.

A variable that the script sets to a constant is that constant; one that a loop goes through is each of its values; any
other stays visible as ``${name}``, a substitution as ``$()``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

from batchyard.doctor.shell.tree import Substitution, Text, Variable, Word

#: readings of one command that are followed up
MAX_READINGS = 64

Variables = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Args:
    """A function's arguments. ``shifts``: by how many of them `shift` may have moved on; each is a reading."""

    words: tuple[str, ...] = ()
    shifts: int = 0

    def all(self) -> list[tuple[str, ...]]:
        return [self.words[shift:] for shift in range(min(self.shifts, len(self.words)) + 1)]


_BRACES = re.compile(r"^(.*?)\{([^{},]*(?:,[^{},]*)+)\}(.*)$", re.DOTALL)
_REFERENCE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")


def readings(words: Iterable[Word], variables: Variables, args: Args) -> list[tuple[str, ...]]:
    """The argument lists that a command may come to."""
    fields = [_fields(word, variables, args) for word in words]
    found: list[tuple[str, ...]] = []
    for choice in product(*fields):
        found.append(tuple(text for part in choice for text in part))
        if len(found) >= MAX_READINGS:
            break
    return found


def text_of(word: Word, variables: Variables, args: Args) -> str:
    """The first reading of a word that is not split."""
    options = _fields(word, variables, args)
    return " ".join(options[0]) if options else ""


def fill(text: str, variables: Variables) -> str:
    """A heredoc's text with what is known put in."""

    def value(match: re.Match[str]) -> str:
        known = variables.get(match[1] or match[2])
        return known[0] if known and len(known) == 1 else match[0]

    return _REFERENCE.sub(value, text)


def _fields(word: Word, variables: Variables, args: Args) -> list[tuple[str, ...]]:
    """Each way to read the word: the fields that it becomes."""
    whole = [p for p in word.pieces if isinstance(p, Variable) and (p.name in ("@", "*") or p.is_array)]
    if len(word.pieces) <= 2 and whole:
        return _lists(whole[0], variables, args)
    parts: list[list[str]] = []
    is_split = False
    for piece in word.pieces:
        if isinstance(piece, Text):
            parts.append([piece.text])
        elif isinstance(piece, Substitution):
            parts.append(["$()"])
        else:
            is_split = is_split or not piece.is_quoted
            parts.append(_values(piece, variables, args))
    found: list[tuple[str, ...]] = []
    for choice in product(*parts):
        text = "".join(choice)
        fields = tuple(text.split()) if is_split else (text,)
        found.append(_braced(fields) if _has_open_brace(word) else fields)
        if len(found) >= MAX_READINGS:
            break
    return found


def _lists(variable: Variable, variables: Variables, args: Args) -> list[tuple[str, ...]]:
    """All arguments, or all elements of an array: as so many fields, or as one."""
    if variable.name in ("@", "*"):
        found = [words[variable.start :] for words in args.all()]
    else:
        found = [variables.get(variable.name, (f"${{{variable.name}}}",))]
    is_one = variable.is_quoted and variable.joins
    return [(" ".join(words),) for words in found] if is_one else found


def _values(variable: Variable, variables: Variables, args: Args) -> list[str]:
    if variable.name.isdigit():
        number = int(variable.name) if len(variable.name) < 4 else 0
        known = [words[number - 1] for words in args.all() if 0 < number <= len(words)]
        return known or [variable.default or f"${{{variable.name}}}"]
    values = variables.get(variable.name)
    if values:
        return list(values)
    return [variable.default or f"${{{variable.name}}}"]


def _has_open_brace(word: Word) -> bool:
    return any(isinstance(p, Text) and not p.is_quoted and "{" in p.text and "," in p.text for p in word.pieces)


def _braced(fields: tuple[str, ...]) -> tuple[str, ...]:
    """{a,b} -> a b, once a word."""
    found: list[str] = []
    for field in fields:
        match = _BRACES.match(field) if len(field) < 500 else None
        found += [f"{match[1]}{option}{match[3]}" for option in match[2].split(",")] if match else [field]
    return tuple(found)
