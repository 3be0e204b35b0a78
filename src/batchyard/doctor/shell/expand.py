"""Words -> the texts they may come to, as far as the script itself says. Pure.

A variable that the script sets to a constant is that constant; one that a loop goes through is each of its values; any
other stays visible as ``${name}``, a substitution whose output is not known as ``$()``. No text grows beyond ``limit``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

from batchyard.doctor.shell import parameters
from batchyard.doctor.shell.tree import Piece, Substitution, Text, Variable, Word

#: readings of one command that are followed up
MAX_READINGS = 64
#: characters that one command, or one text, may come to
MAX_TEXT = 100_000
#: so many times as much may all readings of its words be together
MANY = 10
#: what a word may still come to afterwards
SHORT = 300

Variables = Mapping[str, tuple[str, ...]]

_BRACES = re.compile(r"^(.*?)\{([^{},]*(?:,[^{},]*)+)\}(.*)$", re.DOTALL)
_REFERENCE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
#: bash does not split what is assigned
_ASSIGNS = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=", re.ASCII)


@dataclass(frozen=True, slots=True)
class Args:
    """A function's arguments. ``shifts``: by how many of them `shift` may have moved on; each is a reading."""

    words: tuple[str, ...] = ()
    shifts: int = 0
    #: $0, where it is given
    zero: str = ""

    def all(self) -> list[tuple[str, ...]]:
        return [self.words[shift:] for shift in range(min(self.shifts, len(self.words)) + 1)]


@dataclass(frozen=True, slots=True)
class Scope:
    """What is known where a word stands."""

    variables: Variables
    args: Args
    #: what substitutions printed, by their identity
    outputs: Mapping[int, tuple[Substitution, str]] = field(default_factory=dict)
    limit: int = MAX_TEXT


def readings(words: Iterable[Word], scope: Scope) -> list[tuple[str, ...]]:
    """The argument lists that a command may come to."""
    fields: list[list[tuple[str, ...]]] = []
    left = MANY * scope.limit
    for word in words:
        options = (
            _fields(word, scope) if left > 0 else _fields(word, replace(scope, limit=SHORT))[:1]
        )
        left -= sum(map(cost, options))
        fields.append(options)
    found: list[tuple[str, ...]] = []
    for choice in product(*fields):
        found.append(_bounded((text for part in choice for text in part), scope.limit))
        if len(found) >= MAX_READINGS:
            break
    return found


def cost(words: Iterable[str]) -> int:
    """Roughly the bytes that they take."""
    return sum(len(word) + 60 for word in words)


def _bounded(words: Iterable[str], limit: int) -> tuple[str, ...]:
    found: list[str] = []
    for word in words:
        limit -= len(word) + 1
        if limit < 0:
            break
        found.append(word)
    return tuple(found)


def text_of(word: Word, scope: Scope) -> str:
    """The first reading of a word that is not split."""
    options = _fields(word, scope)
    return " ".join(options[0]) if options else ""


def fill(text: str, scope: Scope) -> str:
    """A heredoc's text with what is known put in."""
    found: list[str] = []
    length = at = 0
    for match in _REFERENCE.finditer(text):
        known = scope.variables.get(match[1] or match[2])
        value = known[0] if known and len(known) == 1 else match[0]
        found += (text[at : match.start()], value)
        length += match.start() - at + len(value)
        at = match.end()
        if length > scope.limit:
            return "".join(found)[: scope.limit]
    return "".join((*found, text[at:]))


def _fields(word: Word, scope: Scope) -> list[tuple[str, ...]]:
    """Each way to read the word: the fields that it becomes."""
    whole = [
        p for p in word.pieces if isinstance(p, Variable) and (p.name in ("@", "*") or p.is_array)
    ]
    if len(word.pieces) <= 2 and whole:
        return _lists(whole[0], scope)
    parts: list[list[str]] = []
    is_split = False
    for piece in word.pieces:
        is_split = is_split or (not isinstance(piece, Text) and not piece.is_quoted)
        parts.append(_options(piece, scope))
    first = word.pieces[0] if word.pieces else None
    if isinstance(first, Text) and not first.is_quoted and _ASSIGNS.match(first.text):
        is_split = False
    found: list[tuple[str, ...]] = []
    for choice in product(*parts):
        text = "".join(_bounded(choice, scope.limit))
        fields = tuple(text.split()) if is_split else (text,)
        found.append(_braced(fields) if _has_open_brace(word) else fields)
        if len(found) >= MAX_READINGS:
            break
    return found


def _options(piece: Piece, scope: Scope) -> list[str]:
    if isinstance(piece, Text):
        return [piece.text]
    if isinstance(piece, Variable):
        return _values(piece, scope)
    if piece.text is not None:
        return [piece.text]
    known = scope.outputs.get(id(piece))
    return [known[1] if known and known[0] is piece else "$()"]


def _lists(variable: Variable, scope: Scope) -> list[tuple[str, ...]]:
    """All arguments, or all elements of an array: as so many fields, or as one."""
    if variable.name in ("@", "*"):
        found = [words[variable.start :] for words in scope.args.all()]
    else:
        found = [scope.variables.get(variable.name, (f"${{{variable.name}}}",))]
    is_one = variable.is_quoted and variable.joins
    return [(" ".join(words),) for words in found] if is_one else found


def _values(variable: Variable, scope: Scope) -> list[str]:
    known = _known(variable.name, scope)
    operator = variable.operator
    unknown = f"${{{variable.name}}}"
    if operator in parameters.DEFAULTS:
        return known or [operand(variable, scope) or unknown]
    if operator in parameters.INSTEAD:
        return [operand(variable, scope)] if known else [operand(variable, scope), ""]
    if operator == "!":
        return [value for name in known for value in scope.variables.get(name, ())] or [unknown]
    if operator and known:
        behind = operand(variable, scope)
        changed = (parameters.changed(value, operator, behind) for value in known)
        return list(dict.fromkeys(unknown if value is None else value for value in changed))
    return known or [unknown]


def operand(variable: Variable, scope: Scope) -> str:
    return text_of(Word((Text("", True), *variable.operand), 0), scope) if variable.operand else ""


def _known(name: str, scope: Scope) -> list[str]:
    if name.isdigit():
        number = int(name) if len(name) < 4 else 0
        if not number:
            return [scope.args.zero] if scope.args.zero else []
        return [words[number - 1] for words in scope.args.all() if number <= len(words)]
    return list(scope.variables.get(name, ()))


def _has_open_brace(word: Word) -> bool:
    return any(
        isinstance(p, Text) and not p.is_quoted and "{" in p.text and "," in p.text
        for p in word.pieces
    )


def _braced(fields: tuple[str, ...]) -> tuple[str, ...]:
    """{a,b} -> a b, once a word."""
    found: list[str] = []
    for field_ in fields:
        match = _BRACES.match(field_) if len(field_) < 500 else None
        found += (
            [f"{match[1]}{option}{match[3]}" for option in match[2].split(",")]
            if match
            else [field_]
        )
    return tuple(found)
