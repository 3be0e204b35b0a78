"""Short programs of a runner, whose output is read when they have ended. No thread waits for one.

Calls of the docker command are such programs, and commands that look at a running attempt.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from batchyard.embedded.spawner import Exit, Output, Process, Spawner

#: Called at the end of a program, with its exit code and its output.
OnAnswer = Callable[[int, str], None]


class _Answer(Output):
    """The output of one program, in a file of no child's log: of memory, or /dev/null."""

    __slots__ = ()

    def __init__(self, file: int) -> None:
        self.name = ("", 0, 0)
        self.mark = b""
        self.read_end = self.write_end = file
        self.file = None
        # The spawner does not watch an output that is watched already.
        self.is_watched = True
        self.length = 0
        self.tail = b""

    def take(self) -> str:
        """Return the whole output, and close its file."""
        size = os.fstat(self.read_end).st_size
        text = os.pread(self.read_end, size, 0).decode(errors="replace")
        os.close(self.read_end)
        return text


def start(
    spawner: Spawner,
    program: str,
    argv: Sequence[str],
    environ: Mapping[bytes, bytes],
    on_answer: OnAnswer,
    *,
    keeps_output: bool = True,
) -> Process:
    """Start a program. Its owner is called with its end: see ``handle_ends``.

    ``keeps_output``: False for programs of users, whose output may be larger than the memory.
    Raises OSError or ValueError if it cannot be started.
    """
    if keeps_output:
        answer = _Answer(os.memfd_create("answer", os.MFD_CLOEXEC))
    else:
        answer = _Answer(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))

    def on_exit(exit: Exit) -> None:
        on_answer(exit.exit_code, answer.take())

    try:
        return spawner.spawn(program, tuple(argv), environ, answer, on_exit)
    except (OSError, ValueError):
        answer.take()
        raise


def handle_ends(exits: Sequence[Exit]) -> None:
    """Call the owners of processes that have ended."""
    for exit in exits:
        on_exit = exit.process.owner
        assert callable(on_exit)
        on_exit(exit)
