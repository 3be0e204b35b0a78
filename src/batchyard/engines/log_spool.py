"""Output that a service returns once and in order, kept in files of this machine to read any part.

Only output that `sizes` has fetched is there. The files have no names and vanish with the process.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from typing import IO

from batchyard.engines.base import LogChunk

#: Returns the new output of one child: a step and an index.
ReadNew = Callable[[str, int], Iterable[LogChunk]]


class LogSpool:
    def __init__(self, read_new: ReadNew) -> None:
        self._read_new = read_new
        #: (step, index) -> attempt -> its output.
        self._files: dict[tuple[str, int], dict[int, IO[bytes]]] = {}

    def __del__(self) -> None:
        # Nobody closes a reader of logs: what it has returned must not be returned again.
        for files in self._files.values():
            for file in files.values():
                file.close()

    def sizes(self, step: str, index: int) -> dict[int, int]:
        """Fetch the new output of a child, and return attempt -> bytes of its output so far."""
        files = self._files.setdefault((step, index), {})
        for chunk in self._read_new(step, index):
            if chunk.attempt not in files:
                files[chunk.attempt] = tempfile.TemporaryFile(buffering=0)
            files[chunk.attempt].write(chunk.data)
        return {attempt: os.fstat(files[attempt].fileno()).st_size for attempt in sorted(files)}

    def read_part(self, step: str, index: int, attempt: int, begin: int, length: int) -> bytes:
        file = self._files.get((step, index), {}).get(attempt)
        return b"" if file is None else os.pread(file.fileno(), length, begin)
