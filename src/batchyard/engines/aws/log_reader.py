"""The output of a run's children on AWS, from CloudWatch Logs. Each event is returned once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from batchyard.aws.logs import Logs
from batchyard.batch.jobs import JobState
from batchyard.engines.aws import from_aws
from batchyard.engines.aws.changed_children import ChangedChildren
from batchyard.engines.aws.from_aws import UNSUBMITTED, Stream
from batchyard.engines.aws.render import Part
from batchyard.engines.base import AttemptDetail, CommandDetail, JobDetail, LogChunk
from batchyard.plan import Plan
from batchyard.worker.headings import select_output

#: By how much the clock of the log can be behind that of a worker.
_LOG_CLOCK_MS = 60_000
#: Streams that one FilterLogEvents request can name.
_STREAMS_PER_CALL = 100
#: Streams whose newest events are no further apart are read together: no more is read twice.
_ACTIVE_MS = 5_000
#: An event may reach CloudWatch Logs later than newer ones of other streams, by no more than this.
_MAX_DELAY_MS = 60_000
#: A log stream may appear so long after the end of its attempt. Attempts whose container did not
#: start have the name of a stream that never appears.
_LATE_MS = 30_000
_LATE_LOOK_S = 1.0

DescribedChildren = Iterable[tuple[Part, Mapping[str, Any]]]


class LogReader:
    def __init__(
        self,
        logs: Logs,
        group: str,
        plan: Plan,
        children: ChangedChildren,
        list_parts: Callable[[], list[tuple[Part, str]]],
        describe_jobs: Callable[[], Sequence[JobDetail]],
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``list_parts``: the parts with the ids of their jobs; ``describe_jobs``: these jobs."""
        self._logs = logs
        self._group = group
        self._plan = plan
        self._children = children
        self._list_parts = list_parts
        self._describe_jobs = describe_jobs
        self._clock = clock
        self._sleep = sleep
        #: Events that were read by ``follow`` and not returned, since a later call failed.
        self._unreturned: list[tuple[Stream, Any]] = []
        #: Streams that are still written to, or have not been read since they ended.
        self._open: dict[str, Stream] = {}
        #: Names of streams that have been read to their end.
        self._finished: set[str] = set()
        #: Stream -> time of its newest event, and the ids of its events of that time.
        self._newest: dict[str, tuple[int, set[str]]] = {}
        #: Time of the newest event of all streams.
        self._latest_ms = 0
        #: Stream -> ``_latest_ms`` when the stream was read: older events can only be late ones.
        self._read_to_ms: dict[str, int] = {}
        #: (step, index, attempt) -> name of the stream.
        self._names: dict[tuple[str, int, int], str] = {}
        #: The last streams of children that failed for good.
        self._of_failed: set[str] = set()

    def read(
        self, step: str | None = None, index: int | None = None, *, failed_only: bool = False
    ) -> Iterator[LogChunk]:
        """Return the new output, ordered by step, child and attempt."""
        # One child is described by its number; the other jobs are not needed.
        is_one_child = step is not None and index is not None
        jobs = () if is_one_child else self._describe_jobs()
        self._record_streams(self._find_children(jobs, step, index, failed_only, is_thorough=True))
        streams = sorted(self._select(step, index, failed_only), key=self._sort_key)
        for first in range(0, len(streams), _STREAMS_PER_CALL):
            group = streams[first : first + _STREAMS_PER_CALL]
            order = {stream.name: number for number, stream in enumerate(group)}
            events = self._read_with_late_streams(group)
            for stream, event in sorted(events, key=lambda pair: order[pair[0].name]):
                yield _to_chunk(stream, event)

    def follow(
        self,
        jobs: Sequence[JobDetail],
        step: str | None = None,
        index: int | None = None,
        *,
        failed_only: bool = False,
    ) -> Iterator[LogChunk]:
        """Return the new output in order of time."""
        self._record_streams(self._find_children(jobs, step, index, failed_only, is_thorough=False))
        are_over = all(job.state.is_terminal for job in jobs)
        read = self._read_with_late_streams if are_over else self._read_new_events
        for group in self._group_by_activity(self._select(step, index, failed_only)):
            for first in range(0, len(group), _STREAMS_PER_CALL):
                self._unreturned += read(group[first : first + _STREAMS_PER_CALL])
        events, self._unreturned = self._unreturned, []
        for stream, event in sorted(events, key=lambda pair: pair[1]["timestamp"]):
            yield _to_chunk(stream, event)

    @property
    def missing(self) -> str:
        if not self._children.forgotten:
            return ""
        return (
            "AWS has forgotten the run's jobs, as it does after a week, and with them the names of "
            f"their log streams; the output may still be in the log group {self._group}"
        )

    def tail(self, attempt: AttemptDetail, lines: int) -> list[str]:
        key = (attempt.step, attempt.index, attempt.attempt)
        if key not in self._names:
            self._record_streams(self._find_child(attempt.step, attempt.index))
        name = self._names.get(key)
        return [] if name is None else self._logs.last_lines(self._group, name, lines)

    def read_command(self, command: CommandDetail, last_bytes: int | None = None) -> bytes:
        key = (command.step, command.index, command.child_attempt)
        if key not in self._names:
            self._record_streams(self._find_child(command.step, command.index))
        if key not in self._names:
            return b""
        # Times in the log can be those of another clock.
        start_ms = max(0, (command.started_ms or 0) - _LOG_CLOCK_MS)
        events, _ = self._logs.read_events(self._group, [self._names[key]], start_ms)
        lines = [str(event["message"]) for event in events]
        # A child of a dynamic step runs many commands, each with a heading in the log.
        if self._plan.job(command.step).is_dynamic:
            lines = select_output(lines, command.number)
        output = "".join(f"{line}\n" for line in lines).encode()
        return output[-last_bytes if last_bytes else 0 :]

    # -- which streams -------------------------------------------------------------------------

    def _find_children(
        self,
        jobs: Sequence[JobDetail],
        step: str | None,
        index: int | None,
        failed_only: bool,
        *,
        is_thorough: bool,
    ) -> DescribedChildren:
        if step is not None and index is not None:
            return self._find_child(step, index)
        by_id = {job.id: job for job in jobs}
        submitted = [
            (part, by_id[job_id])
            for part, job_id in self._list_parts()
            if job_id in by_id and not job_id.startswith(UNSUBMITTED) and step in (None, part.step)
        ]
        if failed_only:
            return self._children.look_at_failed(submitted)
        return self._children.look(submitted, is_thorough=is_thorough)

    def _find_child(self, step: str, index: int) -> DescribedChildren:
        planned = self._plan.job(step)
        for part, job_id in self._list_parts():
            if part.step != step or job_id.startswith(UNSUBMITTED):
                continue
            for number in range(part.size):
                if planned.index_in_step(part.offset + number) == index:
                    return self._children.look_at_child(part, job_id, number)
        return ()

    def _record_streams(self, children: DescribedChildren) -> None:
        for part, job in children:
            streams = list(from_aws.find_streams(part, self._plan.job(part.step), job))
            for stream in streams:
                self._names[stream.step, stream.index, stream.attempt] = stream.name
                if stream.name not in self._finished:
                    self._open[stream.name] = stream
            if job["status"] == JobState.FAILED:
                self._of_failed.update(stream.name for stream in streams[-1:])

    def _select(self, step: str | None, index: int | None, failed_only: bool) -> list[Stream]:
        """Return the open streams of a step, a child, or of failed children."""
        return [
            stream
            for stream in self._open.values()
            if step in (None, stream.step)
            and index in (None, stream.index)
            and (not failed_only or stream.name in self._of_failed)
        ]

    def _sort_key(self, stream: Stream) -> tuple[int, int, int]:
        steps = [job.step for job in self._plan.jobs]
        return steps.index(stream.step), stream.index, stream.attempt

    def _group_by_activity(self, streams: Iterable[Stream]) -> list[list[Stream]]:
        """Group the streams so that reading one does not read much of another again."""
        new, quiet, active = [], [], []
        for stream in streams:
            if stream.name not in self._newest:
                new.append(stream)
            elif self._newest[stream.name][0] < self._latest_ms - _ACTIVE_MS:
                quiet.append(stream)
            else:
                active.append(stream)
        return [active, quiet, new]

    # -- their events --------------------------------------------------------------------------

    def _read_new_events(self, streams: Sequence[Stream]) -> list[tuple[Stream, Any]]:
        """Return the events that were not returned yet. Streams that have ended are closed.

        A stream that does not exist stays open as long as it may appear.
        """
        by_name = {stream.name: stream for stream in streams}
        start_ms = min(map(self._start_ms, by_name), default=0)
        if not by_name:
            return []
        new_events, missing = self._logs.read_events(self._group, list(by_name), start_ms)
        events = [
            (by_name[event["logStreamName"]], event) for event in new_events if self._is_new(event)
        ]
        for stream in streams:
            self._read_to_ms[stream.name] = self._latest_ms
            if stream.is_over and not (stream.name in missing and self._may_appear(stream)):
                self._finished.add(stream.name)
                self._open.pop(stream.name, None)
                self._newest.pop(stream.name, None)
                self._read_to_ms.pop(stream.name, None)
        return events

    def _read_with_late_streams(self, streams: Sequence[Stream]) -> list[tuple[Stream, Any]]:
        """As ``_read_new_events``; wait for the streams of ended attempts that may appear."""
        events = self._read_new_events(streams)
        while late := [s for s in streams if s.is_over and s.name in self._open]:
            self._sleep(_LATE_LOOK_S)
            events += self._read_new_events(late)
        return events

    def _may_appear(self, stream: Stream) -> bool:
        return self._clock() * 1000 < stream.ended_ms + _LATE_MS

    def _start_ms(self, name: str) -> int:
        """Return the time from which on the stream may have new events."""
        if name not in self._newest:
            return 0
        return max(self._newest[name][0], self._read_to_ms.get(name, 0) - _MAX_DELAY_MS)

    def _is_new(self, event: Any) -> bool:
        """Return whether the event was not seen before, and remember it."""
        name, at_ms, event_id = event["logStreamName"], event["timestamp"], event["eventId"]
        newest_ms, ids = self._newest.get(name, (-1, set()))
        if at_ms < newest_ms or (at_ms == newest_ms and event_id in ids):
            return False
        if at_ms > newest_ms:
            ids = set()
            self._newest[name] = (at_ms, ids)
            self._latest_ms = max(self._latest_ms, at_ms)
        ids.add(event_id)
        return True


def _to_chunk(stream: Stream, event: Any) -> LogChunk:
    return LogChunk(stream.step, stream.index, stream.attempt, event["message"].encode() + b"\n")
