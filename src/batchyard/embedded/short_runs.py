"""Starts a program and waits a few milliseconds for its end, in one call.

Most of the time of a short process is not its own: each new program displaces the interpreter from
the caches of the CPU, and other threads take the interpreter lock between two calls. So all that is
done between the start and the end of a short process is one call of C, short_run.c, which is
compiled when batchyard is installed. Where there was no compiler, the same is done in Python.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from batchyard.embedded.posix_spawn import ATTRIBUTES, NO_FILE, Program

#: What hatch_build.py makes of short_run.c.
LIBRARY = Path(__file__).with_name("short_run.so")
#: After this time a process is not a short one any more.
PATIENCE_MS = 4
#: No pipe holds more, unless its capacity was changed.
_PIPE_SIZE = 1 << 16


class ShortRun(ctypes.Structure):
    """What has become of a program. The same fields as in short_run.c."""

    #: From the start of the program until now, or until its end.
    lasted_us: int
    user_us: int
    system_us: int
    max_rss_kib: int
    #: Length of the output that was read.
    length: int
    pid: int
    #: Whether the process has ended. It is reaped then, and the rest of its group killed.
    is_over: int
    #: As of wait(2), if the process has ended.
    status: int
    #: The pipe of a process that still runs, if it was opened here.
    read_end: int
    write_end: int

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("lasted_us", "user_us", "system_us")),
        *((name, ctypes.c_int64) for name in ("max_rss_kib", "length")),
        *((name, ctypes.c_int32) for name in ("pid", "is_over", "status")),
        *((name, ctypes.c_int32) for name in ("read_end", "write_end")),
    ]


@cache
def find_library() -> ctypes.CDLL | None:
    """Return the compiled functions; None if there are none for this machine."""
    try:
        return ctypes.CDLL(str(LIBRARY))
    except OSError:
        return None


class ShortRunner:
    """Runs programs one after the other. Each thread has its own."""

    def __init__(self, stdin: int, *, uses_library: bool = True) -> None:
        """``stdin``: of all programs. ``uses_library``: False to do without compiled code."""
        self._stdin = stdin
        self._run = ShortRun()
        self._buffer = ctypes.create_string_buffer(_PIPE_SIZE)
        self._run_reference = ctypes.byref(self._run)
        library = find_library() if uses_library else None
        self._run_short: Callable[..., int] | None = (
            None if library is None else library.batchyard_run_short
        )

    def run(self, program: Program, stdout: int) -> ShortRun:
        """Start a program, and wait until it ends or is not a short one any more.

        ``stdout``: for its output; NO_FILE opens a pipe. Returns an object that the next call uses
        again. Raises OSError if the program cannot be started, or no pipe opened.
        """
        run, variables = self._run, program.variables
        if self._run_short is None:
            self._run_in_python(program, stdout)
            return run
        error = self._run_short(
            program.encoded_path,
            program.arguments,
            variables.shared,
            variables.shared_count,
            variables.own,
            variables.own_count,
            ATTRIBUTES,
            self._stdin,
            stdout,
            PATIENCE_MS,
            self._buffer,
            _PIPE_SIZE,
            self._run_reference,
        )
        if error:
            raise OSError(error, os.strerror(error), program.path)
        return run

    @property
    def output(self) -> bytes:
        """What the program of the last call has written to the pipe that was opened for it."""
        length = self._run.length
        return ctypes.string_at(self._buffer, length) if length else b""

    # -- without the library: the steps of short_run.c -----------------------------------------

    def _run_in_python(self, program: Program, stdout: int) -> None:
        run = self._run
        run.is_over, run.length = 0, 0
        run.read_end = run.write_end = NO_FILE
        if stdout == NO_FILE:
            run.read_end, run.write_end = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(run.read_end, False)
        try:
            run.pid = program.start(self._stdin, run.write_end if stdout == NO_FILE else stdout)
        except OSError:
            self._close_pipe()
            raise
        started_s = time.monotonic()
        if _wait_for_end(run.pid):
            self._reap()
            if stdout == NO_FILE:
                self._read_output()
            self._close_pipe()
        run.lasted_us = int((time.monotonic() - started_s) * 1e6)

    def _reap(self) -> None:
        run = self._run
        # The zombie still has its pid, so that no other process group can have it.
        try:
            os.killpg(run.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        _, run.status, usage = os.wait4(run.pid, 0)
        run.is_over = 1
        run.user_us, run.system_us = int(usage.ru_utime * 1e6), int(usage.ru_stime * 1e6)
        run.max_rss_kib = usage.ru_maxrss

    def _read_output(self) -> None:
        run = self._run
        # Closed first, so that a read of the empty pipe returns its end.
        os.close(run.write_end)
        run.write_end = NO_FILE
        while run.length < _PIPE_SIZE:
            try:
                data = os.read(run.read_end, _PIPE_SIZE - run.length)
            except BlockingIOError:  # a process that has left the group still has the pipe
                return
            if not data:
                return
            ctypes.memmove(ctypes.byref(self._buffer, run.length), data, len(data))
            run.length += len(data)

    def _close_pipe(self) -> None:
        run = self._run
        for end in (run.write_end, run.read_end):
            if end != NO_FILE:
                os.close(end)
        run.read_end = run.write_end = NO_FILE


def _wait_for_end(pid: int) -> bool:
    """Return whether the process ends within the time of a short one."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:  # too many open files: nothing shows whether the process is a short one
        return False
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        return bool(poll.poll(PATIENCE_MS))
    finally:
        os.close(pidfd)
