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


class OpenLogs:
    """The runs whose logs were read last, open: an engine may keep what it has fetched."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, tuple[RunEngine, threading.Lock]] = {}

    @contextmanager
    def reader(self, record: RunRecord) -> Iterator[LogReader]:
        """Return the reader of a run's logs, for one request at a time."""
        with self._lock:
            entry = self._open.pop(record.run_id, None) or (record.open(), threading.Lock())
            self._open[record.run_id] = entry
            old = [self._open.pop(key) for key in list(self._open)[:-_MAX_OPEN]]
        for engine, lock in old:
            with lock:
                engine.close()
        engine, lock = entry
        with lock:
            yield engine.log_reader


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
    while position < size:
        with logs.reader(record) as reader:
            piece = reader.read_part(step, index, attempt, position, min(_PIECE, size - position))
        if not piece:
            return
        position += len(piece)
        yield piece
