"""The output of children on disk, byte for byte.

The output of a short child goes into a shared file, short.log, since creating a file costs 0.1 ms;
the child's row in the database has the position. Every other child has its own file, which can be
followed while the child runs. Children write to a pipe and never to the file, since
`> /dev/stderr` in a script would truncate the file.
"""

from __future__ import annotations

import os

from batchyard.errors import from_os_error
from batchyard.folder import RunFolder

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class LogBook:
    """Writes the log files of one run."""

    #: Permissions of new files.
    file_mode = 0o644

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._pending: list[bytes] = []
        self._step_folders: set[str] = set()
        try:
            folder.logs.mkdir(parents=True, exist_ok=True)
            self._short = os.open(folder.short_log, _APPEND, self.file_mode)
        except OSError as exc:
            raise from_os_error(exc, "open the log", folder.short_log) from exc
        self._offset = os.fstat(self._short).st_size

    def add_short(self, data: bytes) -> int:
        """Add output to short.log with the next ``flush``, and return its position there."""
        offset = self._offset
        if data:
            self._pending.append(data)
            self._offset += len(data)
        return offset

    def flush(self) -> None:
        """Write short.log. Call it before the rows that refer to it are committed."""
        if self._pending:
            data = b"".join(self._pending)
            self._pending.clear()
            self.write(self._short, data)

    def open_child_log(self, step: str, index: int, attempt: int) -> int:
        """Open the log file of an attempt, and return its file number."""
        path = self._folder.log_of(step, index, attempt)
        try:
            if step not in self._step_folders:
                path.parent.mkdir(exist_ok=True)
                self._step_folders.add(step)
            # Appended, since an earlier engine may have run some commands of the same attempt.
            return os.open(path, _APPEND, self.file_mode)
        except OSError as exc:
            raise from_os_error(exc, "write the log", path) from exc

    def write(self, fd: int, data: bytes) -> None:
        """Write all bytes. Raises OperationalError."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(fd, view) :]
        except OSError as exc:
            raise from_os_error(exc, "write a log in", self._folder.logs) from exc

    def close(self) -> None:
        os.close(self._short)
