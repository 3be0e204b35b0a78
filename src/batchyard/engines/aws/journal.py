"""What has been submitted, on disk: the intent before each submission, the id after it. Lines of JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from batchyard.errors import from_os_error


class Journal:
    def __init__(self, path: Path) -> None:
        self._path = path
        #: names of the parts that were about to be submitted
        self.intended: set[str] = set()
        #: name -> id
        self.ids: dict[str, str] = {}
        #: name -> when, in seconds since the epoch
        self.submitted_at: dict[str, float] = {}
        #: when it was written last, in seconds since the epoch; 0 where it is new
        self.changed_at = 0.0
        self._read()

    def intend(self, name: str) -> None:
        self.intended.add(name)
        self._add({"intend": name})

    def submitted(self, name: str, job_id: str, at: float) -> None:
        self.ids[name], self.submitted_at[name] = job_id, at
        self._add({"submitted": name, "id": job_id, "at": round(at, 3)})

    def to_json(self) -> dict[str, Any]:
        """For other machines."""
        return {
            "jobs": {
                name: {"id": job_id, "at": self.submitted_at[name]}
                for name, job_id in self.ids.items()
            }
        }

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
                # An older batchyard has not noted when.
                self.submitted_at[entry["submitted"]] = entry.get("at", self.changed_at)

    def _add(self, entry: dict[str, Any]) -> None:
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


def of_another(kept: Mapping[str, Any], now: float) -> Iterator[tuple[str, str, float]]:
    """(name, id, when) of what another machine has submitted. An older batchyard has kept the ids alone."""
    for name, job in kept.get("jobs", kept).items():
        yield (name, job, now) if isinstance(job, str) else (name, job["id"], job["at"])
