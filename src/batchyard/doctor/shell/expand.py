"""Expand words: return the texts that a word can become. Pure.

A variable that the script sets to a constant is that constant; the variable of a loop is each of
its values; any other stays visible as ``${name}``, and a substitution with unknown output as
``$()``. No text grows beyond ``limit``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, product

from batchyard.doctor.shell import parameters
from batchyard.doctor.shell.syntax_tree import Piece, Substitution, Text, Variable, Word

#: readings of one command that are followed
MAX_READINGS = 64
#: characters of one command, or of one text
MAX_TEXT = 100_000
#: all readings of a command's words together may have so many times ``limit`` characters
READINGS_FACTOR = 10
#: characters of a word after that
SHORT = 300

Variables = Mapping[str, tuple[str, ...]]

_BRACES = re.compile(r"^(.*?)\{([^{},]*(?:,[^{},]*)+)\}(.*)$", re.DOTALL)
_REFERENCE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
#: bash does not split the value of an assignment
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=", re.ASCII)


@dataclass(frozen=True, slots=True)
class Args:
    """Arguments. `shift` may have moved them by 0 to ``shifts`` places; each is a reading."""

    words: tuple[str, ...] = ()
    shifts: int = 0
    #: $0, if it is set
    zero: str = ""

    def readings(self) -> list[tuple[str, ...]]:
        return [self.words[shift:] for shift in range(min(self.shifts, len(self.words)) + 1)]


@dataclass(frozen=True, slots=True)
class Scope:
    """The values that are known where a word is expanded."""

    variables: Variables
    args: Args
    #: outputs of substitutions, by the identity of the substitution
    outputs: Mapping[int, tuple[Substitution, str]] = field(default_factory=dict)
    limit: int = MAX_TEXT


def readings(words: Iterable[Word], scope: Scope) -> list[tuple[str, ...]]:
    """Return the argument lists that a command's words can expand to."""
    options_of_words: list[list[tuple[str, ...]]] = []
    budget = READINGS_FACTOR * scope.limit
    short_scope = replace(scope, limit=SHORT)
    for word in words:
        options = _expand(word, scope) if budget > 0 else _expand(word, short_scope)[:1]
        budget -= sum(map(cost, options))
        options_of_words.append(options)
    return [
        _limit_words((text for fields in choice for text in fields), scope.limit)
        for choice in islice(product(*options_of_words), MAX_READINGS)
    ]


def cost(words: Iterable[str]) -> int:
    """Return roughly how many bytes the words take."""
    return sum(len(word) + 60 for word in words)


def _limit_words(words: Iterable[str], limit: int) -> tuple[str, ...]:
    """Return the first words that have at most ``limit`` characters together."""
    first_words: list[str] = []
    for word in words:
        limit -= len(word) + 1
        if limit < 0:
            break
        first_words.append(word)
    return tuple(first_words)


def text_of(word: Word, scope: Scope) -> str:
    """Return the first reading of a word that is not split into fields."""
    options = _expand(word, scope)
    return " ".join(options[0]) if options else ""


def fill(text: str, scope: Scope) -> str:
    """Replace the variables of a heredoc's text that have one known value."""
    pieces: list[str] = []
    length = at = 0
    for match in _REFERENCE.finditer(text):
        values = scope.variables.get(match[1] or match[2])
        value = values[0] if values and len(values) == 1 else match[0]
        pieces += (text[at : match.start()], value)
        length += match.start() - at + len(value)
        at = match.end()
        if length > scope.limit:
            return "".join(pieces)[: scope.limit]
    return "".join((*pieces, text[at:]))


def _expand(word: Word, scope: Scope) -> list[tuple[str, ...]]:
    """Return the readings of a word; each is the fields that the word becomes."""
    lists = [piece for piece in word.pieces if isinstance(piece, Variable) and _is_list(piece)]
    if len(word.pieces) <= 2 and lists:
        return _expand_list(lists[0], scope)
    options = [_expand_piece(piece, scope) for piece in word.pieces]
    is_split = _is_split(word)
    has_braces = _has_braces(word)
    expansions: list[tuple[str, ...]] = []
    for choice in islice(product(*options), MAX_READINGS):
        text = "".join(_limit_words(choice, scope.limit))
        fields = tuple(text.split()) if is_split else (text,)
        expansions.append(_expand_braces(fields) if has_braces else fields)
    return expansions


def _is_list(variable: Variable) -> bool:
    return variable.name in ("@", "*") or variable.is_array


def _is_split(word: Word) -> bool:
    """Return whether the shell splits the expanded word at blanks."""
    first = word.pieces[0] if word.pieces else None
    if isinstance(first, Text) and not first.is_quoted and _ASSIGNMENT.match(first.text):
        return False
    return any(not isinstance(piece, Text) and not piece.is_quoted for piece in word.pieces)


def _expand_piece(piece: Piece, scope: Scope) -> list[str]:
    if isinstance(piece, Text):
        return [piece.text]
    if isinstance(piece, Variable):
        return _expand_variable(piece, scope)
    if piece.text is not None:
        return [piece.text]
    output = scope.outputs.get(id(piece))
    return [output[1] if output and output[0] is piece else "$()"]


def _expand_list(variable: Variable, scope: Scope) -> list[tuple[str, ...]]:
    """Return all arguments, or all elements of an array: as many fields, or joined to one."""
    if variable.name in ("@", "*"):
        lists = [words[variable.start :] for words in scope.args.readings()]
    else:
        lists = [scope.variables.get(variable.name, (f"${{{variable.name}}}",))]
    is_joined = variable.is_quoted and variable.joins
    return [(" ".join(words),) for words in lists] if is_joined else lists


def _expand_variable(variable: Variable, scope: Scope) -> list[str]:
    values = _values_of(variable.name, scope)
    unknown = f"${{{variable.name}}}"
    if variable.operator in parameters.DEFAULTS:
        return values or [operand(variable, scope) or unknown]
    if variable.operator in parameters.ALTERNATIVES:
        return [operand(variable, scope)] if values else [operand(variable, scope), ""]
    if variable.operator == "!":
        return _expand_indirect(values, scope) or [unknown]
    return _apply_operator(variable, values, scope) or [unknown]


def _apply_operator(variable: Variable, values: list[str], scope: Scope) -> list[str]:
    """Return the values after an operator such as ${name%.sh}; ${name} for an unknown result."""
    if not variable.operator or not values:
        return values
    text = operand(variable, scope)
    results = (parameters.apply(value, variable.operator, text) for value in values)
    unknown = f"${{{variable.name}}}"
    return list(dict.fromkeys(unknown if result is None else result for result in results))


def _expand_indirect(names: list[str], scope: Scope) -> list[str]:
    """Return the values of ${!name}: of the variables whose names are the values of ``name``."""
    return [value for name in names for value in scope.variables.get(name, ())]


def operand(variable: Variable, scope: Scope) -> str:
    """Return the expanded text behind a variable's operator."""
    return text_of(Word((Text("", True), *variable.operand), 0), scope) if variable.operand else ""


def _values_of(name: str, scope: Scope) -> list[str]:
    if name.isdigit():
        number = int(name) if len(name) < 4 else 0
        if not number:
            return [scope.args.zero] if scope.args.zero else []
        return [words[number - 1] for words in scope.args.readings() if number <= len(words)]
    return list(scope.variables.get(name, ()))


def _has_braces(word: Word) -> bool:
    return any(
        isinstance(piece, Text) and not piece.is_quoted and "{" in piece.text and "," in piece.text
        for piece in word.pieces
    )


def _expand_braces(fields: tuple[str, ...]) -> tuple[str, ...]:
    """Expand the first {a,b} of each field."""
    expanded: list[str] = []
    for text in fields:
        match = _BRACES.match(text) if len(text) < 500 else None
        if match:
            expanded += [f"{match[1]}{option}{match[3]}" for option in match[2].split(",")]
        else:
            expanded.append(text)
    return tuple(expanded)
