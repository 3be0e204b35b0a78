"""The journal of submissions, on disk: the intent before each SubmitJob, the job's id after it.

Where the answer to a SubmitJob was lost and its job was not found, a further intent says so: AWS
may have two jobs of that part.

The file has one JSON document a line, and is only appended to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from batchyard.engines.json_lines import append_line
from batchyard.errors import from_os_error


class Journal:
    def __init__(self, path: Path) -> None:
        self._path = path
        #: Name of a part -> when it was last about to be submitted, in seconds since the epoch.
        self.intended_at: dict[str, float] = {}
        #: Names of the parts that may have been submitted more than once.
        self.repeated: set[str] = set()
        #: Name of a part -> id of its job.
        self.ids: dict[str, str] = {}
        #: Name of a part -> when it was submitted, in seconds since the epoch.
        self.submitted_at: dict[str, float] = {}
        #: When the file was written last, in seconds since the epoch; 0 for a new file.
        self.changed_at = 0.0
        self._read()

    def intend(self, name: str, at_s: float, token: str = "", *, is_repeat: bool = False) -> None:
        """Record that the part is about to be submitted, as a job with this token."""
        self.intended_at[name] = at_s
        if is_repeat:
            self.repeated.add(name)
        repeat = {"repeat": True} if is_repeat else {}
        self._append({"intend": name, "at": round(at_s, 3), "token": token, **repeat})

    def mark_repeated(self, name: str) -> None:
        """Record that AWS has several jobs of the part."""
        if name not in self.repeated:
            self.repeated.add(name)
            self._append({"repeated": name})

    def record_submitted(self, name: str, job_id: str, at_s: float) -> None:
        self.ids[name], self.submitted_at[name] = job_id, at_s
        self._append({"submitted": name, "id": job_id, "at": round(at_s, 3)})

    def to_json(self) -> dict[str, Any]:
        """Return the ids in the shape that other machines read from S3."""
        return {
            "jobs": {
                name: {"id": job_id, "at": self.submitted_at[name]}
                for name, job_id in self.ids.items()
            },
            "repeated": sorted(self.repeated),
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
            # Older versions of batchyard did not write the times.
            at_s = entry.get("at", self.changed_at)
            if "intend" in entry:
                self.intended_at[entry["intend"]] = at_s
                if entry.get("repeat"):
                    self.repeated.add(entry["intend"])
            elif "repeated" in entry:
                self.repeated.add(entry["repeated"])
            elif "submitted" in entry:
                self.ids[entry["submitted"]] = entry["id"]
                self.submitted_at[entry["submitted"]] = at_s

    def _append(self, entry: dict[str, Any]) -> None:
        append_line(self._path, entry)


def read_shared_ids(document: Mapping[str, Any], now_s: float) -> Iterator[tuple[str, str, float]]:
    """Return (name, id, time in seconds) of the jobs that another machine has submitted.

    Older versions of batchyard wrote the ids alone; ``now_s`` stands for their times.
    """
    for name, job in document.get("jobs", document).items():
        yield (name, job, now_s) if isinstance(job, str) else (name, job["id"], job["at"])
