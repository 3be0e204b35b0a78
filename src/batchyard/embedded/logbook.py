"""Children's output on disk, byte for byte.

A child that ends before anybody looked at it writes into one shared file, short.log, since creating a file costs a
tenth of a millisecond; its row says where. All others have a file of their own, which can be followed while they
run. Children write to a pipe, never to the file: `> /dev/stderr` in a script would truncate a file, its own log.
"""

from __future__ import annotations

import os

from batchyard.errors import from_os_error
from batchyard.folder import RunFolder


class LogBook:
    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._pending: list[bytes] = []
        self._made: set[str] = set()
        try:
            folder.logs.mkdir(parents=True, exist_ok=True)
            self._short = os.open(
                folder.short_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
            )
        except OSError as exc:
            raise from_os_error(exc, "open the log", folder.short_log) from exc
        self._offset = os.fstat(self._short).st_size

    def add_short(self, data: bytes) -> int:
        """Keeps the bytes and says where in short.log they will be; they are written by the next ``flush``."""
        offset = self._offset
        if data:
            self._pending.append(data)
            self._offset += len(data)
        return offset

    def flush(self) -> None:
        """Before the rows that point at them are committed."""
        if self._pending:
            data = b"".join(self._pending)
            self._pending.clear()
            self.write(self._short, data)

    def open_own(self, step: str, index: int, attempt: int) -> int:
        path = self._folder.log_of(step, index, attempt)
        try:
            if step not in self._made:
                path.parent.mkdir(exist_ok=True)
                self._made.add(step)
            # An attempt whose engine died may have done some of its commands: what they wrote stays.
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as exc:
            raise from_os_error(exc, "write the log", path) from exc

    def write(self, fd: int, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(fd, view) :]
        except OSError as exc:
            raise from_os_error(exc, "write a log in", self._folder.logs) from exc

    def close(self) -> None:
        os.close(self._short)
