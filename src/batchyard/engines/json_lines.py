"""Journals: files with one JSON document a line, which are only appended to."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from batchyard.errors import from_os_error


def append_line(path: Path, entry: dict[str, Any]) -> None:
    """Append a document; it is on disk on return. Raises OperationalError."""
    data = json.dumps(entry).encode() + b"\n"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            size = os.fstat(fd).st_size
            # A line that a dead process has cut short is ended first.
            if size and os.pread(fd, 1, size - 1) != b"\n":
                data = b"\n" + data
            os.write(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as exc:
        raise from_os_error(exc, "write", path) from exc


class LineReader:
    """Reads the documents of a journal that other processes append to, each once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def read_new(self) -> list[dict[str, Any]]:
        """Return the documents since the last call. Raises OperationalError."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise from_os_error(exc, "read", self._path) from exc
        # The last line may be half written.
        whole, _, _ = data.rpartition(b"\n")
        self._position += len(whole) + 1 if whole else 0
        return [entry for line in whole.split(b"\n") if (entry := _parse(line)) is not None]


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return the document of a line; None for a line that was cut short when a process died."""
    try:
        entry = json.loads(line) if line else None
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
