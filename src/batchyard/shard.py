"""Share a list of commands out to children. Pure; engines and the worker on AWS use it."""

from __future__ import annotations

from collections.abc import Container

#: Ways to share a list out: each child gets consecutive commands, or every n-th command, or takes
#: the next ones whenever it has finished some.
STATIC, STRIDED, DYNAMIC = "static", "strided", "dynamic"
SHARE_OUTS = (STATIC, STRIDED, DYNAMIC)


def commands_of(total: int, index: int, size: int, share_out: str = STATIC) -> range:
    """Return the numbers of the commands that child ``index`` of ``size`` runs, of ``total``.

    Every command is in exactly one child, and each child has its commands in order. ``share_out``
    is STATIC or STRIDED: the commands of a child of a dynamic step are not known beforehand.
    """
    if share_out == STRIDED:
        return range(index, total, size)
    return range(total * index // size, total * (index + 1) // size)


def child_of(total: int, command: int, size: int, share_out: str = STATIC) -> int:
    """Return the child of ``size`` that runs the command, of ``total``; see ``commands_of``."""
    if share_out == STRIDED:
        return command % size
    return ((command + 1) * size - 1) // total


class Turn:
    """The progress of one attempt through its commands, and its exit code.

    Commands that succeeded in an earlier attempt are skipped. After a failure the attempt ends,
    unless ``keep_going``. Its exit code is that of the first command that failed.
    """

    __slots__ = ("_done", "_keep_going", "_remaining", "exit_code")

    def __init__(
        self, commands: range, done: Container[int] = (), *, keep_going: bool = False
    ) -> None:
        """``done``: numbers of the commands that have succeeded."""
        self._remaining = iter(commands)
        self._done = done
        self._keep_going = keep_going
        self.exit_code = 0

    def next(self) -> int | None:
        """Return the number of the next command to run, or None at the end of the attempt."""
        if self.exit_code and not self._keep_going:
            return None
        for number in self._remaining:
            if number not in self._done:
                return number
        return None

    def record_exit(self, exit_code: int) -> None:
        """Record the exit code of the command that ``next`` returned last."""
        self.exit_code = self.exit_code or exit_code
