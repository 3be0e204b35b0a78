"""What the children of a run on AWS have written, each event given once: ``read`` again gives what is new."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from batchyard.aws.logs import Logs
from batchyard.engines.aws import details
from batchyard.engines.aws.details import Stream
from batchyard.engines.aws.render import Part
from batchyard.engines.base import AttemptDetail, LogChunk
from batchyard.plan import Plan

_STREAMS_AT_ONCE = 100

Children = Callable[[Sequence[str], bool, str | None, int | None], Iterator[tuple[Part, list[Any]]]]


class LogReader:
    def __init__(
        self, logs: Logs, group: str, plan: Plan, children: Children, job_ids: Callable[[], list[str]]
    ) -> None:
        """``children``: (jobs, whether only failed ones, of which step, of which index) -> each part with those of
        its children, as AWS describes them."""
        self._logs = logs
        self._group = group
        self._plan = plan
        self._children = children
        self._job_ids = job_ids
        #: streams that have been read to their end
        self._finished: set[str] = set()
        #: stream -> time of its newest event, and the ids of those of that time
        self._newest: dict[str, tuple[int, set[str]]] = {}
        #: (step, index, attempt) -> stream
        self._names: dict[tuple[str, int, int], str] = {}

    def read(
        self, step: str | None = None, index: int | None = None, *, failed_only: bool = False
    ) -> Iterator[LogChunk]:
        streams = [stream for stream in self._streams(step, index, failed_only) if stream.name not in self._finished]
        # What is read from its beginning must not make the others be read from theirs.
        for some in (
            [stream for stream in streams if stream.name in self._newest],
            [stream for stream in streams if stream.name not in self._newest],
        ):
            for first in range(0, len(some), _STREAMS_AT_ONCE):
                yield from self._read(some[first : first + _STREAMS_AT_ONCE])

    def tail(self, detail: AttemptDetail, lines: int) -> list[str]:
        """The last lines of one attempt's output."""
        key = (detail.step, detail.index, detail.attempt)
        if key not in self._names:
            for _ in self._streams(detail.step, detail.index, failed_only=False):
                pass
        name = self._names.get(key)
        return [] if name is None else self._logs.last(self._group, name, lines)

    def _read(self, streams: list[Stream]) -> Iterator[LogChunk]:
        """By stream the first time; after that in order of time, as it happens."""
        start_ms = min((self._newest.get(stream.name, (0, set()))[0] for stream in streams), default=0)
        is_first = not any(stream.name in self._newest for stream in streams)
        by_name = {stream.name: stream for stream in streams}
        found: list[tuple[Stream, Any]] = []
        for event in self._logs.filtered(self._group, list(by_name), start_ms):
            if self._is_new(event):
                found.append((by_name[event["logStreamName"]], event))
        if is_first:
            order = {stream.name: number for number, stream in enumerate(streams)}
            found.sort(key=lambda pair: order[pair[0].name])
        for stream, event in found:
            yield LogChunk(stream.step, stream.index, stream.attempt, event["message"].encode() + b"\n")
        self._finished.update(stream.name for stream in streams if stream.is_over)

    def _is_new(self, event: Any) -> bool:
        name, at, event_id = event["logStreamName"], event["timestamp"], event["eventId"]
        newest, ids = self._newest.get(name, (-1, set()))
        if at < newest or (at == newest and event_id in ids):
            return False
        self._newest[name] = (at, ids | {event_id} if at == newest else {event_id})
        return True

    def _streams(self, step: str | None, index: int | None, failed_only: bool) -> list[Stream]:
        found = []
        for part, children in self._children(self._job_ids(), failed_only, step, index):
            planned = self._plan.job(part.step)
            for job in children:
                streams = list(details.streams(part, planned, job))
                for stream in streams:
                    self._names[stream.step, stream.index, stream.attempt] = stream.name
                found += streams[-1:] if failed_only else streams
        return sorted(found, key=lambda stream: (stream.index, stream.attempt)) if step else found
