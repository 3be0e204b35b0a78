"""Output that a service returns once and in order, kept in a file of this machine to read any part.

Only output that `sizes` has fetched is there. The file has no name and vanishes with the process.
All children share it: a run whose logs are open needs one file, however many of them are read.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress
from operator import itemgetter
from typing import IO

from batchyard.engines.base import LogChunk

#: Returns the new output of one child: a step and an index.
ReadNew = Callable[[str, int], Iterable[LogChunk]]


class _Output:
    """Where the output of one attempt is in the file."""

    def __init__(self) -> None:
        self.size = 0
        #: (begin in the output, begin in the file) of each part; a part ends where the next begins.
        self._parts: list[tuple[int, int]] = []
        self._file_end = -1

    def add(self, position: int, length: int) -> None:
        """Note that the next ``length`` bytes of the output are at a position of the file."""
        if position != self._file_end:
            self._parts.append((self.size, position))
        self.size += length
        self._file_end = position + length

    def find(self, begin: int) -> tuple[int, int]:
        """Return the position of a byte of the output, and how many follow it without a break."""
        number = bisect_right(self._parts, begin, key=itemgetter(0))
        part_begin, position = self._parts[number - 1]
        end = self._parts[number][0] if number < len(self._parts) else self.size
        return position + begin - part_begin, end - begin


class LogSpool:
    def __init__(self, read_new: ReadNew) -> None:
        self._read_new = read_new
        self._file: IO[bytes] | None = None
        #: (step, index) -> attempt -> its output.
        self._outputs: dict[tuple[str, int], dict[int, _Output]] = {}

    def __del__(self) -> None:
        # Nobody closes a reader of logs: what it has returned must not be returned again.
        if self._file is not None:
            with suppress(OSError):
                self._file.close()

    def sizes(self, step: str, index: int) -> dict[int, int]:
        """Fetch the new output of a child, and return attempt -> bytes of its output so far."""
        outputs = self._outputs.setdefault((step, index), {})
        for chunk in self._read_new(step, index):
            self._append(outputs.setdefault(chunk.attempt, _Output()), chunk.data)
        if self._file is not None:
            self._file.flush()
        return {attempt: outputs[attempt].size for attempt in sorted(outputs)}

    def _append(self, output: _Output, data: bytes) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()
        position = self._file.tell()  # behind what a full disk has let in of other output
        self._file.write(data)
        output.add(position, len(data))

    def read_part(self, step: str, index: int, attempt: int, begin: int, length: int) -> bytes:
        output = self._outputs.get((step, index), {}).get(attempt)
        if output is None or self._file is None:
            return b""
        pieces = []
        end = min(output.size, begin + length)
        while begin < end:
            position, available = output.find(begin)
            pieces.append(os.pread(self._file.fileno(), min(available, end - begin), position))
            if not pieces[-1]:
                break  # the file could not be written
            begin += len(pieces[-1])
        return b"".join(pieces)
