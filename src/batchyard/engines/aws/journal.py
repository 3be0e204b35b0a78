"""What has been submitted, on disk: the intent before each submission, the id after it. Lines of JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path

from batchyard.errors import from_os_error


class Journal:
    def __init__(self, path: Path) -> None:
        self._path = path
        #: names of the parts that were about to be submitted
        self.intended: set[str] = set()
        #: name -> id
        self.ids: dict[str, str] = {}
        #: when it was written last, in seconds since the epoch; 0 where it is new
        self.changed_at = 0.0
        self._read()

    def intend(self, name: str) -> None:
        self.intended.add(name)
        self._add({"intend": name})

    def submitted(self, name: str, job_id: str) -> None:
        self.ids[name] = job_id
        self._add({"submitted": name, "id": job_id})

    def _read(self) -> None:
        try:
            lines = self._path.read_bytes().split(b"\n")
            self.changed_at = self._path.stat().st_mtime
        except FileNotFoundError:
            return
        except OSError as exc:
            raise from_os_error(exc, "read", self._path) from exc
        for line in lines:
            try:
                entry = json.loads(line) if line else {}
            except ValueError:
                continue  # cut short when a process died: as if it had not been written
            if "intend" in entry:
                self.intended.add(entry["intend"])
            elif "submitted" in entry:
                self.ids[entry["submitted"]] = entry["id"]

    def _add(self, entry: dict[str, str]) -> None:
        # A line that a dead process has cut short is ended first.
        data = json.dumps(entry).encode() + b"\n"
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                size = os.fstat(fd).st_size
                if size and os.pread(fd, 1, size - 1) != b"\n":
                    data = b"\n" + data
                os.write(fd, data)
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as exc:
            raise from_os_error(exc, "write", self._path) from exc
