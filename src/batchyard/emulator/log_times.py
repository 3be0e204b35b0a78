"""The times at which the output of long children was written.

`<child>-<attempt>.times` lies beside `<child>-<attempt>.log`. Each write to the log adds an entry:
two unsigned 64-bit numbers in the byte order of this machine, offset in the log and time in ms.
Neither number decreases from one entry to the next, so a binary search finds a time.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from batchyard.embedded.logbook import LogBook
from batchyard.errors import from_os_error
from batchyard.folder import RunFolder

_ENTRY = struct.Struct("=QQ")
#: Permissions of files with the output of jobs, which may contain secrets.
PRIVATE_MODE = 0o600
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


def times_path(log: Path) -> Path:
    """Return the file that holds the write times of a log."""
    return log.with_suffix(".times")


@dataclass(slots=True)
class _OpenLog:
    """A log that is being written."""

    times: Path
    #: Bytes in the log.
    offset: int
    #: Time of the last entry.
    last_ms: int


class TimedLogBook(LogBook):
    """A log book that also records the write times of the logs of long children.

    Output in short.log needs none: all of it has the time at which its attempt ended.
    """

    file_mode = PRIVATE_MODE

    def __init__(self, folder: RunFolder, clock: Callable[[], float] = time.time) -> None:
        super().__init__(folder)
        self._clock = clock
        #: By file descriptor. The entry of a closed descriptor stays until another log gets it.
        self._open_logs: dict[int, _OpenLog] = {}

    def open_child_log(self, step: str, index: int, attempt: int) -> int:
        fd = super().open_child_log(step, index, attempt)
        times = times_path(self._folder.log_of(step, index, attempt))
        try:
            self._open_logs[fd] = _OpenLog(times, os.fstat(fd).st_size, _repair(times))
        except OSError as exc:
            os.close(fd)
            raise from_os_error(exc, "write the log", times) from exc
        return fd

    def write(self, fd: int, data: bytes) -> None:
        super().write(fd, data)
        log = self._open_logs.get(fd)
        if log is None:
            return
        offset, log.offset = log.offset, log.offset + len(data)
        now_ms = int(self._clock() * 1000)
        # Writes in the same millisecond share an entry, and so do writes after the clock was set
        # back.
        if now_ms > log.last_ms:
            log.last_ms = now_ms
            self._append(log.times, _ENTRY.pack(offset, now_ms))

    def _append(self, path: Path, entry: bytes) -> None:
        # The file is opened for each entry: a thousand long children need enough descriptors.
        try:
            fd = os.open(path, _APPEND, PRIVATE_MODE)
            try:
                os.write(fd, entry)
            finally:
                os.close(fd)
        except OSError as exc:
            raise from_os_error(exc, "write the log", path) from exc


def _repair(path: Path) -> int:
    """Cut off an entry that a crash left incomplete; return the time of the last entry or 0."""
    if not path.exists():
        return 0
    fd = os.open(path, _APPEND, PRIVATE_MODE)
    try:
        size = os.fstat(fd).st_size
        whole = size - size % _ENTRY.size
        if whole < size:
            os.ftruncate(fd, whole)
        if not whole:
            return 0
        _, last_ms = _ENTRY.unpack(os.pread(fd, _ENTRY.size, whole - _ENTRY.size))
        return int(last_ms)
    finally:
        os.close(fd)


class WriteTimes:
    """The write times of a log. Holds a memory map until ``close``."""

    def __init__(self, log: Path) -> None:
        self._map: mmap.mmap | None = None
        self._numbers: memoryview | None = None
        self.count = 0
        try:
            fd = os.open(times_path(log), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            self.count = os.fstat(fd).st_size // _ENTRY.size
            if self.count:
                self._map = mmap.mmap(fd, self.count * _ENTRY.size, prot=mmap.PROT_READ)
                self._numbers = memoryview(self._map).cast("Q")
        finally:
            os.close(fd)

    def offset(self, entry: int) -> int:
        assert self._numbers is not None
        return self._numbers[2 * entry]

    def time_ms(self, entry: int) -> int:
        assert self._numbers is not None
        return self._numbers[2 * entry + 1]

    def entry_at(self, offset: int) -> int:
        """Return the entry of the byte at an offset; -1 for a byte before the first entry."""
        return bisect_right(range(self.count), offset, key=self.offset) - 1

    def first_since(self, time_ms: int) -> int:
        """Return the first entry that is not older than a time; ``count`` if there is none."""
        return bisect_left(range(self.count), time_ms, key=self.time_ms)

    def close(self) -> None:
        if self._numbers is not None and self._map is not None:
            self._numbers.release()
            self._map.close()
            self._numbers, self._map, self.count = None, None, 0
