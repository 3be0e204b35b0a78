"""Which commands are a child's, and how it goes through them. Pure; shared by the engine here and the worker on AWS."""

from __future__ import annotations

from collections.abc import Container


def commands_of(total: int, index: int, size: int) -> range:
    """The commands, of ``total``, that child ``index`` of ``size`` runs: each in exactly one child, in order."""
    return range(total * index // size, total * (index + 1) // size)


class Turn:
    """One attempt's way through its commands: which is next, and what exit code it all comes to.

    What an earlier attempt has done is passed over. After a failure the rest is left, unless ``keep_going``; the
    exit code is that of the first command that failed.
    """

    __slots__ = ("_done", "_keep_going", "_next", "_stop", "exit_code")

    def __init__(
        self, commands: range, done: Container[int] = (), *, keep_going: bool = False
    ) -> None:
        self._next = commands.start
        self._stop = commands.stop
        self._done = done
        self._keep_going = keep_going
        self.exit_code = 0

    def next(self) -> int | None:
        """The number of the command to run now, or None when the attempt is over."""
        if self.exit_code and not self._keep_going:
            return None
        while self._next < self._stop:
            number = self._next
            self._next += 1
            if number not in self._done:
                return number
        return None

    def ended(self, exit_code: int) -> None:
        self.exit_code = self.exit_code or exit_code
