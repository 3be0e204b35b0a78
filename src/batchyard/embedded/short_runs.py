"""Runs short programs one after the other, without the interpreter of Python between them.

Most of the time of a short process is not its own: each new program displaces the interpreter from
the caches of the CPU, and other threads take the interpreter lock between two calls. So a whole
series of programs is one call of C, short_runs.c, which is compiled when batchyard is installed.
Where there was no compiler, the same is done in Python.

A series goes on while its programs are short and succeed. What has ended is read from another
thread while the series runs, and the programs that have not started can be withdrawn.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import struct
import termios
import threading
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from batchyard.embedded.posix_spawn import ATTRIBUTES, NO_FILE, Program

#: The number of the structures below, as in short_runs.c.
_LAYOUT = 1
#: What hatch_build.py makes of short_runs.c.
LIBRARY = Path(__file__).with_name("libshort_runs.so")
#: After this time a process is not a short one any more: its pipe is watched, since a full one
#: would block it, and its followers are withdrawn, since another slot may be free.
PATIENCE_MS = 4
#: After this time the programs of a series that have ended are reported.
REPORT_AFTER_MS = 10
#: What a pipe holds on most machines. A process whose pipe holds more is left to the caller.
_PIPE_SIZE = 1 << 16
_BUFFER_SIZE = 4 * _PIPE_SIZE
_ATTRIBUTES_ADDRESS = ctypes.addressof(ATTRIBUTES)
#: Set in ``taken`` when no further program may start.
_WITHDRAWN = 1 << 30


class ShortRun(ctypes.Structure):
    """A program of a series, and what has become of it. The same fields as in short_runs.c."""

    error: int
    pid: int
    is_over: int
    status: int
    stdout_fd: int
    read_end: int
    write_end: int
    output_start: int
    output_length: int
    started_us: int
    ended_us: int
    user_us: int
    system_us: int
    max_rss_kib: int

    _fields_ = [
        ("path", ctypes.c_char_p),
        ("argv", ctypes.c_void_p),
        ("shared", ctypes.c_void_p),
        ("own", ctypes.c_char_p),
        *((name, ctypes.c_int32) for name in ("shared_count", "own_count", "stdout_fd", "error")),
        *((name, ctypes.c_int32) for name in ("pid", "is_over", "status", "read_end")),
        *((name, ctypes.c_int32) for name in ("write_end", "output_start", "output_length")),
        *((name, ctypes.c_int64) for name in ("started_us", "ended_us", "user_us")),
        *((name, ctypes.c_int64) for name in ("system_us", "max_rss_kib")),
    ]


class _SeriesFields(ctypes.Structure):
    """A series as C sees it: `struct series` of short_runs.c, field by field."""

    buffer_size: int
    pipe_size: int
    buffer_used: int
    taken: int
    ended: int

    _fields_ = [
        ("attributes", ctypes.c_void_p),
        ("buffer", ctypes.c_void_p),
        ("runs", ctypes.c_void_p),
        *((name, ctypes.c_int32) for name in ("buffer_size", "pipe_size", "buffer_used")),
        *((name, ctypes.c_int32) for name in ("stdin_fd", "patience_ms", "report_after_ms")),
        *((name, ctypes.c_int32) for name in ("count", "taken", "ended")),
    ]


class _Library:
    """The functions of short_runs.c."""

    def __init__(self, path: str) -> None:
        if ctypes.c_int32.in_dll(ctypes.CDLL(path), "batchyard_layout").value != _LAYOUT:
            raise ValueError(f"{path} is of another version")
        # The interpreter lock is released only while programs run.
        self.run_series = ctypes.CDLL(path).batchyard_run_series
        quick = ctypes.PyDLL(path)
        self.take = quick.batchyard_take
        self.withdraw = quick.batchyard_withdraw
        self.count_ended = quick.batchyard_count_ended


@cache
def find_library(path: Path = LIBRARY) -> _Library | None:
    """Return the compiled functions; None if there are none for this machine and version."""
    try:
        return _Library(str(path))
    except (OSError, ValueError):
        return None


class OutputBuffer:
    """Memory for the output of the programs of a series. Each thread has its own."""

    def __init__(self, size: int = _BUFFER_SIZE) -> None:
        self.size = size
        self._bytes = ctypes.create_string_buffer(size)
        self.address = ctypes.addressof(self._bytes)

    def read(self, start: int, length: int) -> bytes:
        return ctypes.string_at(self.address + start, length)

    def write(self, start: int, data: bytes) -> None:
        ctypes.memmove(self.address + start, data, len(data))


class Series:
    """Programs that run one after the other, each when the one before it has succeeded soon."""

    __slots__ = ("_fields", "_library", "_lock", "_programs", "_reference", "buffer", "runs")

    def __init__(
        self,
        programs: Sequence[tuple[Program | None, int]],
        stdin: int,
        *,
        report_after_ms: int = REPORT_AFTER_MS,
        uses_library: bool = True,
    ) -> None:
        """``programs``: each with the file for its output; NO_FILE opens a pipe for it.

        None instead of a program is one that cannot be started. ``report_after_ms``: after an end,
        ``run`` returns this much later at the latest, if all goes well. ``uses_library``: False to
        do without compiled code.
        """
        count = len(programs)
        self.runs: ctypes.Array[ShortRun] = (ShortRun * count)()
        # C has only their addresses.
        self._programs: list[Program | None] = [None] * count
        self.buffer: OutputBuffer | None = None
        self._library = find_library() if uses_library else None
        #: Guards ``taken`` where there is no library.
        self._lock = threading.Lock() if self._library is None else None
        self._fields = _SeriesFields(
            _ATTRIBUTES_ADDRESS,
            None,
            ctypes.addressof(self.runs),
            0,
            0,
            0,
            stdin,
            PATIENCE_MS,
            report_after_ms,
            count,
            0,
            0,
        )
        self._reference = ctypes.byref(self._fields)
        for number, (program, stdout) in enumerate(programs):
            self.runs[number].stdout_fd = stdout
            self._set_program(number, program)

    def _set_program(self, number: int, program: Program | None) -> None:
        self._programs[number] = program
        if program is not None:
            run, variables = self.runs[number], program.variables
            run.path = program.encoded_path
            run.argv = ctypes.addressof(program.arguments)
            run.shared = ctypes.addressof(variables.shared)
            run.own = variables.own
            run.shared_count, run.own_count = variables.shared_count, variables.own_count

    def replace(self, number: int, program: Program) -> None:
        """Try another program in the place of one that could not be started."""
        self._set_program(number, program)

    def program(self, number: int) -> Program | None:
        return self._programs[number]

    # -- for any thread --------------------------------------------------------------------------

    def count_ended(self) -> int:
        """Return how many programs have ended."""
        if self._library is None:
            return self._fields.ended
        return int(self._library.count_ended(self._reference))

    def count_taken(self) -> int:
        """Return how many programs have started, or are being started."""
        return self._fields.taken & ~_WITHDRAWN

    def take(self, number: int) -> bool:
        """Return whether the next program may start. If so, it cannot be withdrawn any more."""
        if self._library is not None:
            return bool(self._library.take(self._reference, number))
        assert self._lock is not None
        with self._lock:
            # It was taken already if it is tried a second time.
            if self.count_taken() > number:
                return True
            if self.is_withdrawn:
                return False
            self._fields.taken = number + 1
            return True

    def withdraw(self) -> int:
        """Let no further program start, and return how many are taken."""
        if self._library is not None:
            return int(self._library.withdraw(self._reference))
        assert self._lock is not None
        with self._lock:
            self._fields.taken |= _WITHDRAWN
            return self.count_taken()

    @property
    def is_withdrawn(self) -> bool:
        return bool(self._fields.taken & _WITHDRAWN)

    def output_of(self, run: ShortRun) -> bytes:
        """Return what a program has written to its own pipe until its end."""
        if not run.output_length or self.buffer is None:
            return b""
        return self.buffer.read(run.output_start, run.output_length)

    # -- for the thread that runs it -------------------------------------------------------------

    def end(self, number: int) -> None:
        """Count a program as ended that ``run`` has left to the caller."""
        self._fields.ended = number + 1

    def forget_output(self) -> None:
        """Use the buffer from its begin again: what was written to it has been read."""
        self._fields.buffer_used = 0

    def run(self, buffer: OutputBuffer) -> None:
        """Run the programs that have not ended.

        Returns at a program that still runs, or whose output is larger than the buffer, and leaves
        it to the caller; at one that has failed or could not be started; when ends must be
        reported, or the buffer is full; and at the end.
        """
        self.buffer, fields = buffer, self._fields
        fields.buffer, fields.buffer_size = buffer.address, buffer.size
        fields.pipe_size = min(_PIPE_SIZE, buffer.size)
        if self._library is None:
            self._run_in_python(buffer)
        else:
            self._library.run_series(self._reference)

    # -- without the library: the steps of short_runs.c ------------------------------------------

    def _run_in_python(self, buffer: OutputBuffer) -> None:
        fields = self._fields
        first = fields.ended
        for number in range(first, len(self.runs)):
            if fields.buffer_size - fields.buffer_used < fields.pipe_size or not self.take(number):
                return
            run, program = self.runs[number], self._programs[number]
            self._run_one(run, program, buffer)
            if not run.is_over:
                return
            fields.ended = number + 1
            late_us = run.ended_us - self.runs[first].ended_us
            if run.status or late_us > fields.report_after_ms * 1000:
                return

    def _run_one(self, run: ShortRun, program: Program | None, buffer: OutputBuffer) -> None:
        run.read_end = run.write_end = NO_FILE
        # It may run long before this thread goes on, on a busy machine.
        run.started_us = _now_us()
        try:
            if program is None:
                raise OSError(22, "no program")
            if run.stdout_fd == NO_FILE:
                run.read_end, run.write_end = os.pipe2(os.O_CLOEXEC)
                os.set_blocking(run.read_end, False)
            stdout = run.write_end if run.stdout_fd == NO_FILE else run.stdout_fd
            run.pid = program.start(self._fields.stdin_fd, stdout)
        except OSError as exc:
            run.error = exc.errno or 0
            _close_pipe(run)
            return
        run.error = 0
        if _wait_for_end(run.pid) and self._has_room(run):
            _reap(run)
            if run.stdout_fd == NO_FILE:
                self._read_output(run, buffer)
            _close_pipe(run)
            run.ended_us = _now_us()

    def _has_room(self, run: ShortRun) -> bool:
        """Return whether the buffer has room for the output of a process that has ended."""
        if run.stdout_fd != NO_FILE:
            return True
        (length,) = struct.unpack("i", fcntl.ioctl(run.read_end, termios.FIONREAD, bytes(4)))
        return bool(length <= self._fields.buffer_size - self._fields.buffer_used)

    def _read_output(self, run: ShortRun, buffer: OutputBuffer) -> None:
        fields = self._fields
        run.output_start = fields.buffer_used
        # Closed first, so that a read of the empty pipe returns its end.
        os.close(run.write_end)
        run.write_end = NO_FILE
        while fields.buffer_used < fields.buffer_size:
            try:
                data = os.read(run.read_end, fields.buffer_size - fields.buffer_used)
            except BlockingIOError:  # a process that has left the group still has the pipe
                return
            if not data:
                return
            buffer.write(fields.buffer_used, data)
            run.output_length += len(data)
            fields.buffer_used += len(data)


def _now_us() -> int:
    return time.monotonic_ns() // 1000


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


def _reap(run: ShortRun) -> None:
    # The zombie still has its pid, so that no other process group can have it.
    try:
        os.killpg(run.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    _, run.status, usage = os.wait4(run.pid, 0)
    run.is_over = 1
    run.user_us, run.system_us = int(usage.ru_utime * 1e6), int(usage.ru_stime * 1e6)
    run.max_rss_kib = usage.ru_maxrss


def _close_pipe(run: ShortRun) -> None:
    for end in (run.write_end, run.read_end):
        if end != NO_FILE:
            os.close(end)
    run.read_end = run.write_end = NO_FILE
