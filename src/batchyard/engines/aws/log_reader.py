"""What the children of a run on AWS have written, each event given once: to read again gives what is new."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from batchyard.aws.logs import Logs
from batchyard.batch.jobs import JobState
from batchyard.engines.aws import details
from batchyard.engines.aws.children import Children
from batchyard.engines.aws.details import UNSUBMITTED, Stream
from batchyard.engines.aws.render import Part
from batchyard.engines.base import AttemptDetail, JobDetail, LogChunk
from batchyard.plan import Plan

_STREAMS_AT_ONCE = 100
#: streams whose newest events are no further apart are asked about together: at most so much is read twice
_TALKING_MS = 5_000
#: an event may come to CloudWatch Logs later than newer ones of other streams, by no more than this
_LATE_MS = 60_000

Found = Iterable[tuple[Part, Mapping[str, Any]]]


class LogReader:
    def __init__(
        self,
        logs: Logs,
        group: str,
        plan: Plan,
        children: Children,
        parts: Callable[[], list[tuple[Part, str]]],
        describe: Callable[[], Sequence[JobDetail]],
    ) -> None:
        """``parts``: with the ids of their jobs; ``describe``: these jobs, as they are now."""
        self._logs = logs
        self._group = group
        self._plan = plan
        self._children = children
        self._parts = parts
        self._describe = describe
        #: streams that are still written to, or have not been read since they ended
        self._open: dict[str, Stream] = {}
        #: streams that have been read to their end
        self._finished: set[str] = set()
        #: stream -> time of its newest event, and the ids of those of that time
        self._newest: dict[str, tuple[int, set[str]]] = {}
        #: time of the newest event of all
        self._latest_ms = 0
        #: stream -> what that was when the stream had been read: it has given all that is older, but what comes late
        self._read_to_ms: dict[str, int] = {}
        #: (step, index, attempt) -> stream
        self._names: dict[tuple[str, int, int], str] = {}
        #: the last streams of children that failed for good
        self._of_failed: set[str] = set()

    def read(
        self, step: str | None = None, index: int | None = None, *, failed_only: bool = False
    ) -> Iterator[LogChunk]:
        """By child and attempt."""
        # One child is asked about by its number; nothing else need be known.
        now = () if step is not None and index is not None else self._describe()
        self._note(self._found(now, step, index, failed_only, is_thorough=True))
        streams = sorted(self._wanted(step, index, failed_only), key=self._place)
        for first in range(0, len(streams), _STREAMS_AT_ONCE):
            some = streams[first : first + _STREAMS_AT_ONCE]
            order = {stream.name: number for number, stream in enumerate(some)}
            for stream, event in sorted(self._new(some), key=lambda pair: order[pair[0].name]):
                yield _chunk(stream, event)

    def follow(
        self,
        now: Sequence[JobDetail],
        step: str | None = None,
        index: int | None = None,
        *,
        failed_only: bool = False,
    ) -> Iterator[LogChunk]:
        """What is new, in order of time. ``now``: the run's jobs, as they were just described. While they go on, what
        is given may leave something for the next time; once they are over, it is all there is."""
        self._note(self._found(now, step, index, failed_only, is_thorough=False))
        found: list[tuple[Stream, Any]] = []
        for group in self._groups(self._wanted(step, index, failed_only)):
            for first in range(0, len(group), _STREAMS_AT_ONCE):
                found += self._new(group[first : first + _STREAMS_AT_ONCE])
        for stream, event in sorted(found, key=lambda pair: pair[1]["timestamp"]):
            yield _chunk(stream, event)

    @property
    def missing(self) -> str:
        """What cannot be read any more, in a sentence; empty where there is nothing."""
        if not self._children.forgotten:
            return ""
        return (
            "AWS has forgotten the run's jobs, as it does after a week, and with them the names of their log streams; "
            f"what they wrote may still be in the log group {self._group}"
        )

    def tail(self, detail: AttemptDetail, lines: int) -> list[str]:
        """The last lines of one attempt's output."""
        key = (detail.step, detail.index, detail.attempt)
        if key not in self._names:
            self._note(self._one_child(detail.step, detail.index))
        name = self._names.get(key)
        return [] if name is None else self._logs.last(self._group, name, lines)

    # -- which streams ----------------------------------------------------------------------------------------

    def _found(
        self,
        now: Sequence[JobDetail],
        step: str | None,
        index: int | None,
        failed_only: bool,
        *,
        is_thorough: bool,
    ) -> Found:
        if step is not None and index is not None:
            return self._one_child(step, index)
        known = {detail.id: detail for detail in now}
        jobs = [
            (part, known[job_id])
            for part, job_id in self._parts()
            if job_id in known and not job_id.startswith(UNSUBMITTED) and step in (None, part.step)
        ]
        if failed_only:
            return self._children.look_at_failed(jobs)
        return self._children.look(jobs, is_thorough=is_thorough)

    def _one_child(self, step: str, index: int) -> Found:
        planned = self._plan.job(step)
        for part, job_id in self._parts():
            if part.step != step or job_id.startswith(UNSUBMITTED):
                continue
            for number in range(part.size):
                if planned.index_in_step(part.offset + number) == index:
                    return self._children.look_at(part, job_id, number)
        return ()

    def _note(self, found: Found) -> None:
        for part, job in found:
            streams = list(details.streams(part, self._plan.job(part.step), job))
            for stream in streams:
                self._names[stream.step, stream.index, stream.attempt] = stream.name
                if stream.name not in self._finished:
                    self._open[stream.name] = stream
            if job["status"] == JobState.FAILED:
                self._of_failed.update(stream.name for stream in streams[-1:])

    def _wanted(self, step: str | None, index: int | None, failed_only: bool) -> list[Stream]:
        return [
            stream
            for stream in self._open.values()
            if step in (None, stream.step)
            and index in (None, stream.index)
            and (not failed_only or stream.name in self._of_failed)
        ]

    def _place(self, stream: Stream) -> tuple[int, int, int]:
        steps = [job.step for job in self._plan.jobs]
        return steps.index(stream.step), stream.index, stream.attempt

    def _groups(self, streams: Iterable[Stream]) -> list[list[Stream]]:
        """Put together so that asking about some does not give again what others have said."""
        new, quiet, talking = [], [], []
        for stream in streams:
            if stream.name not in self._newest:
                new.append(stream)
            elif self._newest[stream.name][0] < self._latest_ms - _TALKING_MS:
                quiet.append(stream)
            else:
                talking.append(stream)
        return [talking, quiet, new]

    # -- their events -----------------------------------------------------------------------------------------

    def _new(self, streams: Sequence[Stream]) -> list[tuple[Stream, Any]]:
        """Their events that were not given yet. Those that have ended are done with."""
        by_name = {stream.name: stream for stream in streams}
        events = self._logs.filtered(
            self._group, list(by_name), min(map(self._start_ms, by_name), default=0)
        )
        found = [
            (by_name[event["logStreamName"]], event) for event in events if self._is_new(event)
        ]
        for stream in streams:
            self._read_to_ms[stream.name] = self._latest_ms
            if stream.is_over:
                self._finished.add(stream.name)
                for known in (self._open, self._newest, self._read_to_ms):
                    known.pop(stream.name, None)
        return found

    def _start_ms(self, name: str) -> int:
        """From when on the stream may have something new."""
        if name not in self._newest:
            return 0
        return max(self._newest[name][0], self._read_to_ms.get(name, 0) - _LATE_MS)

    def _is_new(self, event: Any) -> bool:
        name, at, event_id = event["logStreamName"], event["timestamp"], event["eventId"]
        newest, ids = self._newest.get(name, (-1, set()))
        if at < newest or (at == newest and event_id in ids):
            return False
        if at > newest:
            ids = set()
            self._newest[name] = (at, ids)
            self._latest_ms = max(self._latest_ms, at)
        ids.add(event_id)
        return True


def _chunk(stream: Stream, event: Any) -> LogChunk:
    return LogChunk(stream.step, stream.index, stream.attempt, event["message"].encode() + b"\n")
