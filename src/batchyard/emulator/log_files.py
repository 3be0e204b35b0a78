"""The files with the output of jobs: one log per long attempt, and short.log for all others."""

from __future__ import annotations

import os
from pathlib import Path

from batchyard.folder import RunFolder


class LogFiles:
    """Finds logs, and holds short.log open until ``close``."""

    def __init__(self, folder: RunFolder) -> None:
        """Open short.log, which the log book of the engine must have created."""
        self._folder = folder
        self.short_log_fd = os.open(folder.short_log, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self.short_log_fd)

    def path(self, job_id: str, child: int, attempt: int) -> Path:
        """Return where the log of an attempt is, if the attempt has its own file."""
        return self._folder.log_of(job_id, child, attempt)

    def file_names(self, job_id: str) -> frozenset[str]:
        """Return the names of all files of a job's attempts."""
        folder = self._folder.logs / job_id
        return frozenset(os.listdir(folder)) if folder.is_dir() else frozenset()
