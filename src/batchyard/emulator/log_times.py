"""When a child wrote what: beside each log of its own a list of (offset, time in ms), one entry for what came at once.

`<child>-<attempt>.times` lies beside `<child>-<attempt>.log`. An entry is two unsigned 64-bit numbers in this machine's
byte order; neither of them ever falls from one entry to the next, so that a time is found by halving, without reading
the whole list.
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
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


def times_of(log: Path) -> Path:
    """Where the times of a log are."""
    return log.with_suffix(".times")


@dataclass(slots=True)
class _OwnLog:
    """A log that is being written."""

    times: Path
    #: bytes in the log
    offset: int
    #: that of the last entry
    last_ms: int


class TimedLogBook(LogBook):
    """A log book that also keeps when the logs of long children were written.

    Short output needs no such list: all of it has the time of its attempt's end.
    """

    def __init__(self, folder: RunFolder, clock: Callable[[], float] = time.time) -> None:
        super().__init__(folder)
        self._clock = clock
        #: by file descriptor. Nobody says when one is closed: its number then comes back with the next log.
        self._own: dict[int, _OwnLog] = {}

    def open_own(self, step: str, index: int, attempt: int) -> int:
        fd = super().open_own(step, index, attempt)
        times = times_of(self._folder.log_of(step, index, attempt))
        try:
            self._own[fd] = _OwnLog(times, os.fstat(fd).st_size, _mended(times))
        except OSError as exc:
            os.close(fd)
            raise from_os_error(exc, "write the log", times) from exc
        return fd

    def write(self, fd: int, data: bytes) -> None:
        super().write(fd, data)
        own = self._own.get(fd)
        if own is None:
            return
        offset, own.offset = own.offset, own.offset + len(data)
        now_ms = int(self._clock() * 1000)
        # What comes within the same millisecond needs no entry, and a clock that was set back changes nothing.
        if now_ms > own.last_ms:
            own.last_ms = now_ms
            self._note(own.times, _ENTRY.pack(offset, now_ms))

    def _note(self, path: Path, entry: bytes) -> None:
        # Opened for each entry: a thousand long children have enough files open as it is.
        try:
            fd = os.open(path, _APPEND, 0o644)
            try:
                os.write(fd, entry)
            finally:
                os.close(fd)
        except OSError as exc:
            raise from_os_error(exc, "write the log", path) from exc


def _mended(path: Path) -> int:
    """The last entry's time, 0 where there is none. A crash may have left a piece of an entry, which is cut off."""
    if not path.exists():
        return 0
    fd = os.open(path, _APPEND, 0o644)
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


class Times:
    """The entries of one log, read where they are needed."""

    def __init__(self, log: Path) -> None:
        self._map: mmap.mmap | None = None
        self._numbers: memoryview | None = None
        self.count = 0
        try:
            fd = os.open(times_of(log), os.O_RDONLY | os.O_CLOEXEC)
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

    def entry_of(self, offset: int) -> int:
        """The entry that a byte belongs to; -1 where it was written before the first one."""
        return bisect_right(range(self.count), offset, key=self.offset) - 1

    def first_since(self, time_ms: int) -> int:
        """The first entry of that time or later; ``count`` where there is none."""
        return bisect_left(range(self.count), time_ms, key=self.time_ms)

    def close(self) -> None:
        if self._numbers is not None and self._map is not None:
            self._numbers.release()
            self._map.close()
            self._numbers, self._map, self.count = None, None, 0
