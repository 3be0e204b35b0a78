"""Parts of the logs of children: ranges, searches and whole files, each in bounded pieces."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from batchyard.engines.base import LogReader, RunEngine, RunRecord

#: The largest part of a log that one request gets.
MAX_PART = 256 * 1024
_PIECE = 1 << 20
#: A search looks through so many bytes, and returns so many places, before it answers.
_SEARCH_BYTES = 64 << 20
_MAX_PLACES = 500
#: Runs whose logs are open at the same time.
_MAX_OPEN = 4


class _OpenRun:
    """A run whose logs are open."""

    def __init__(self, engine: RunEngine) -> None:
        self.engine = engine
        #: For one request at a time.
        self.lock = threading.Lock()
        #: Requests that use it, or wait for it.
        self.users = 0


class OpenLogs:
    """The runs whose logs were read last, open: an engine may keep what it has fetched."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Run -> its entry; the one that was used last is the last.
        self._open: dict[str, _OpenRun] = {}

    @contextmanager
    def reader(self, record: RunRecord) -> Iterator[LogReader]:
        """Return the reader of a run's logs, for one request at a time."""
        with self.hold(record) as entry, entry.lock:
            yield entry.engine.log_reader

    @contextmanager
    def hold(self, record: RunRecord) -> Iterator[_OpenRun]:
        """Keep the logs of a run open, whatever other logs are opened meanwhile."""
        with self._lock:
            entry = self._open.pop(record.run_id, None) or _OpenRun(record.open())
            self._open[record.run_id] = entry
            entry.users += 1
        try:
            yield entry
        finally:
            with self._lock:
                entry.users -= 1
            self._close_oldest()

    def _close_oldest(self) -> None:
        """Close the runs that were used longest ago, if too many are open."""
        with self._lock:
            idle = [key for key, entry in self._open.items() if not entry.users]
            excess = max(0, len(self._open) - _MAX_OPEN)
            closing = [self._open.pop(key) for key in idle[:excess]]
        for entry in closing:
            entry.engine.close()


def read_part(reader: LogReader, step: str, index: int, attempt: int, begin: int) -> bytes:
    return reader.read_part(step, index, attempt, begin, MAX_PART)


def search(
    reader: LogReader, step: str, index: int, attempt: int, needle: str, begin: int, size: int
) -> dict[str, Any]:
    """Return the positions of a text from ``begin`` on, and where to go on; letters of any case.

    ``next`` is None if the whole log was searched.
    """
    pattern = needle.encode().lower()
    places: list[int] = []
    position, end = begin, min(size, begin + _SEARCH_BYTES)
    while position < end:
        # A piece overlaps the next, for a text across their border.
        piece = reader.read_part(step, index, attempt, position, _PIECE + len(pattern) - 1).lower()
        if not piece:
            break
        found_at = piece.find(pattern)
        while 0 <= found_at < _PIECE:
            places.append(position + found_at)
            if len(places) >= _MAX_PLACES:
                return {"places": places, "next": places[-1] + 1}
            found_at = piece.find(pattern, found_at + 1)
        position += _PIECE
    return {"places": places, "next": position if position < size else None}


def read_whole(
    logs: OpenLogs, record: RunRecord, step: str, index: int, attempt: int, size: int
) -> Iterator[bytes]:
    """Return the first ``size`` bytes of a log in pieces; fewer if they are no longer there."""
    position = 0
    with logs.hold(record) as entry:
        with entry.lock:
            # An engine may have to fetch the output again: another download has closed the run.
            entry.engine.log_reader.sizes(step, index)
        while position < size:
            length = min(_PIECE, size - position)
            with entry.lock:
                piece = entry.engine.log_reader.read_part(step, index, attempt, position, length)
            if not piece:
                return
            position += len(piece)
            yield piece
