"""The state of a shell: variables, arguments, outputs; and the budget for texts. Pure.

The number of steps alone is no limit: a line that doubles a variable is one step. So a text has a
maximum length, and all texts together have a budget; when that is spent, only short texts are made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from batchyard.doctor.shell import expand
from batchyard.doctor.shell.syntax_tree import Substitution, Word
from batchyard.doctor.shell.trace import Context

#: characters of one value of a variable: as many as user data can have
MAX_VALUE = 16_384
#: bytes, roughly, of all texts of a session
MAX_SPENT = 50_000_000
#: cost of parsing one character of a script, in bytes of the budget
PARSING_COST = 100

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=(.*)", re.DOTALL | re.ASCII)
_UNKNOWN_VALUE = re.compile(r"(?:\$\{[^}]*\}|\$\(\))+")
#: [key]=value in an array
_ARRAY_KEY = re.compile(r"\[[^\]]*\]=")


def is_assignment(word: str) -> bool:
    return bool(_ASSIGNMENT.match(word))


class ShellState:
    def __init__(self) -> None:
        self.variables: dict[str, tuple[str, ...]] = {}
        #: how many conditional commands, which may or may not run, are around the current one
        self.branch_depth = 0
        #: the arguments that `set --` set; None if it did not
        self._set_arguments: tuple[str, ...] | None = None
        #: by how many places `shift` may have moved the arguments
        self.shifts = 0
        self._outputs: dict[int, tuple[Substitution, str]] = {}
        self._spent = 0

    # -- budget -----------------------------------------------------------------------------------

    @property
    def max_text(self) -> int:
        """The number of characters that a text may have."""
        return expand.MAX_TEXT if self._spent < MAX_SPENT else expand.SHORT

    def limit_text(self, text: str) -> str:
        """Return the text up to its maximum length, and charge it to the budget."""
        text = text[: self.max_text]
        self._spent += len(text)
        return text

    def limit_script(self, text: str) -> str:
        """Return as much of the text as may be parsed, and charge the parsing to the budget."""
        text = text[: self.max_text]
        self._spent += len(text) * PARSING_COST
        return text

    # -- words ------------------------------------------------------------------------------------

    def scope(self, context: Context) -> expand.Scope:
        words = context.args if self._set_arguments is None else self._set_arguments
        args = expand.Args(words, self.shifts, context.zero)
        return expand.Scope(self.variables, args, self._outputs, self.max_text)

    def expand_words(self, words: tuple[Word, ...], context: Context) -> list[tuple[str, ...]]:
        """Return the argument lists that the words can expand to."""
        readings = [reading for reading in expand.readings(words, self.scope(context)) if reading]
        self._spent += sum(map(expand.cost, readings))
        return readings

    def expand_text(self, word: Word, context: Context) -> str:
        return self.limit_text(expand.text_of(word, self.scope(context)))

    def fill_heredoc(self, text: str, context: Context) -> str:
        return self.limit_text(expand.fill(text, self.scope(context)))

    def set_output(self, piece: Substitution, text: str | None) -> None:
        """Store what a substitution printed; None if it is unknown."""
        if text is None:
            self._outputs.pop(id(piece), None)
        else:
            self._outputs[id(piece)] = (piece, text)

    # -- arguments --------------------------------------------------------------------------------

    def set_arguments(self, words: tuple[str, ...]) -> None:
        self._set_arguments, self.shifts = words, 0

    @contextmanager
    def own_arguments(self) -> Iterator[None]:
        """Give a function or script its own arguments while it runs."""
        outer_state = self._set_arguments, self.shifts
        self._set_arguments, self.shifts = None, 0
        try:
            yield
        finally:
            self._set_arguments, self.shifts = outer_state

    # -- variables --------------------------------------------------------------------------------

    def set_values(self, name: str, values: tuple[str, ...]) -> None:
        """Set the values that a variable may have."""
        distinct = tuple(dict.fromkeys(value[:MAX_VALUE] for value in values))
        self.variables[name] = distinct[: expand.MAX_READINGS]

    def set_array(self, name: str, elements: tuple[str, ...], is_append: bool) -> None:
        plain = tuple(
            _ARRAY_KEY.sub("", element, count=1) if element.startswith("[") else element
            for element in elements
        )
        old_elements = self.variables.get(name, ()) if is_append else ()
        new_elements = tuple(element[:MAX_VALUE] for element in (*old_elements, *plain))
        self.variables[name] = new_elements[: expand.MAX_READINGS] or ("",)

    def assign(self, words: tuple[str, ...]) -> None:
        """Set the variables of the words NAME=value; other words are ignored."""
        for word in words:
            if match := _ASSIGNMENT.match(word):
                name, index, plus, value = match.groups()
                self._assign(name, value, bool(index), bool(plus))

    def _assign(self, name: str, value: str, has_index: bool, is_append: bool) -> None:
        # A variable that a branch sets may have its old value; an index sets one of several values.
        may_be_old = bool(self.branch_depth) or has_index
        old_values = self.variables.get(name, ())
        if _UNKNOWN_VALUE.fullmatch(value):
            if not may_be_old:
                self.variables.pop(name, None)
            return
        values: tuple[str, ...] = (value,)
        if is_append and old_values:
            values = tuple(old_value[:MAX_VALUE] + value for old_value in old_values)
        self.set_values(name, (*old_values, *values) if may_be_old else values)

    @contextmanager
    def assigned_for_command(self, words: tuple[str, ...]) -> Iterator[None]:
        """Set the variables of NAME=value before a command while that command runs."""
        names = {match[1] for word in words if (match := _ASSIGNMENT.match(word))}
        old_values = {name: self.variables.get(name) for name in names}
        self.assign(words)
        try:
            yield
        finally:
            for name, values in old_values.items():
                if values is None:
                    self.variables.pop(name, None)
                else:
                    self.variables[name] = values
