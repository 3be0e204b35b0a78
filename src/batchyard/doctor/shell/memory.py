"""What a shell remembers: variables, arguments, what was printed; and how much may still come of it. Pure.

Steps alone bound nothing: a line that doubles a variable takes one. So texts have a length that they do not grow
beyond, and all texts together a sum; when it is spent, only short ones are made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from batchyard.doctor.shell import expand
from batchyard.doctor.shell.trace import Around
from batchyard.doctor.shell.tree import Substitution, Word

#: one value of a variable: as long as user data can be
MAX_VALUE = 16_384
#: bytes, roughly, of all texts that come of a session
MAX_SPENT = 50_000_000
#: what reading a character of a script costs
PARSING = 100

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=(.*)", re.DOTALL | re.ASCII)
#: nothing of it is known
_UNKNOWN = re.compile(r"(?:\$\{[^}]*\}|\$\(\))+")
#: [key]=value in an array
_KEY = re.compile(r"\[[^\]]*\]=")


def is_assignment(word: str) -> bool:
    return bool(_ASSIGNMENT.match(word))


class Memory:
    def __init__(self) -> None:
        self.variables: dict[str, tuple[str, ...]] = {}
        #: how deep in what may or may not happen
        self.branches = 0
        #: what `set --` made the arguments; None where it did not
        self._positional: tuple[str, ...] | None = None
        #: by how many places `shift` may have moved the arguments of what runs
        self.shifts = 0
        self._outputs: dict[int, tuple[Substitution, str]] = {}
        self._spent = 0

    # -- how much ---------------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """The length that a text may have."""
        return expand.MAX_TEXT if self._spent < MAX_SPENT else expand.SHORT

    def spend(self, cost: int) -> None:
        self._spent += cost

    def fit(self, text: str) -> str:
        text = text[: self.room]
        self._spent += len(text)
        return text

    def script(self, text: str) -> str:
        """As much of it as may still be read as a script."""
        text = text[: self.room]
        self._spent += len(text) * PARSING
        return text

    # -- words ------------------------------------------------------------------------------------------------

    def scope(self, around: Around) -> expand.Scope:
        words = around.args if self._positional is None else self._positional
        args = expand.Args(words, self.shifts, around.zero)
        return expand.Scope(self.variables, args, self._outputs, self.room)

    def readings(self, words: tuple[Word, ...], around: Around) -> list[tuple[str, ...]]:
        found = [reading for reading in expand.readings(words, self.scope(around)) if reading]
        self._spent += sum(map(expand.cost, found))
        return found

    def text_of(self, word: Word, around: Around) -> str:
        return self.fit(expand.text_of(word, self.scope(around)))

    def fill(self, text: str, around: Around) -> str:
        return self.fit(expand.fill(text, self.scope(around)))

    def printed(self, piece: Substitution, text: str | None) -> None:
        if text is None:
            self._outputs.pop(id(piece), None)
        else:
            self._outputs[id(piece)] = (piece, text)

    # -- arguments --------------------------------------------------------------------------------------------

    def set_arguments(self, words: tuple[str, ...]) -> None:
        self._positional, self.shifts = words, 0

    @contextmanager
    def frame(self) -> Iterator[None]:
        """What runs inside has arguments of its own."""
        kept = self._positional, self.shifts
        self._positional, self.shifts = None, 0
        try:
            yield
        finally:
            self._positional, self.shifts = kept

    # -- variables --------------------------------------------------------------------------------------------

    def learn(self, name: str, values: tuple[str, ...]) -> None:
        self.variables[name] = tuple(dict.fromkeys(value[:MAX_VALUE] for value in values))[
            : expand.MAX_READINGS
        ]

    def array(self, name: str, values: tuple[str, ...], is_more: bool) -> None:
        plain = tuple(
            _KEY.sub("", value, count=1) if value.startswith("[") else value for value in values
        )
        before = self.variables.get(name, ()) if is_more else ()
        self.variables[name] = tuple(value[:MAX_VALUE] for value in (*before, *plain))[
            : expand.MAX_READINGS
        ] or ("",)

    def assign(self, words: tuple[str, ...]) -> None:
        for word in words:
            match = _ASSIGNMENT.match(word)
            if not match:
                continue
            name, index, more, value = match.groups()
            before = self.variables.get(name, ())
            if not _UNKNOWN.fullmatch(value):
                values = (
                    tuple(b[:MAX_VALUE] + value for b in before) if more and before else (value,)
                )
                # What is set in a branch may be what it was before; what is set by an index is one of several.
                self.learn(name, (*before, *values) if self.branches or index else values)
            elif not self.branches and not index:
                self.variables.pop(name, None)

    @contextmanager
    def lent(self, words: tuple[str, ...]) -> Iterator[None]:
        """NAME=value before a command: for it alone."""
        names = {match[1] for word in words if (match := _ASSIGNMENT.match(word))}
        kept = {name: self.variables.get(name) for name in names}
        self.assign(words)
        try:
            yield
        finally:
            for name, values in kept.items():
                if values is None:
                    self.variables.pop(name, None)
                else:
                    self.variables[name] = values
