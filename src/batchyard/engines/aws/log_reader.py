"""The output of a run's children on AWS, from CloudWatch Logs. Each event is returned once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from batchyard.aws.logs import Logs
from batchyard.engines.aws.log_streams import ChildStreams, Stream, StreamFinder
from batchyard.engines.base import AttemptDetail, CommandDetail, JobDetail, LogChunk
from batchyard.engines.log_spool import LogSpool
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


class LogReader:
    def __init__(
        self,
        logs: Logs,
        group: str,
        plan: Plan,
        streams: StreamFinder,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._logs = logs
        self._group = group
        self._plan = plan
        self._streams = streams
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
        self._spool = LogSpool(self.read)

    def read(
        self, step: str | None = None, index: int | None = None, *, failed_only: bool = False
    ) -> Iterator[LogChunk]:
        """Return the new output, ordered by step, child and attempt."""
        self._record_streams(self._streams.find(step, index, failed_only=failed_only))
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
        self._record_streams(self._streams.find(step, index, failed_only=failed_only, jobs=jobs))
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
        return self._streams.describe_missing(self._group)

    def tail(self, attempt: AttemptDetail, lines: int) -> list[str]:
        key = (attempt.step, attempt.index, attempt.attempt)
        if key not in self._names:
            self._record_streams(self._streams.find(attempt.step, attempt.index))
        name = self._names.get(key)
        return [] if name is None else self._logs.last_lines(self._group, name, lines)

    def read_command(self, command: CommandDetail, last_bytes: int | None = None) -> bytes:
        key = (command.step, command.index, command.child_attempt)
        if key not in self._names:
            self._record_streams(self._streams.find(command.step, command.index))
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

    def sizes(self, step: str, index: int) -> dict[int, int]:
        return self._spool.sizes(step, index)

    def read_part(self, step: str, index: int, attempt: int, begin: int, length: int) -> bytes:
        return self._spool.read_part(step, index, attempt, begin, length)

    # -- which streams -------------------------------------------------------------------------

    def _record_streams(self, children: Iterable[ChildStreams]) -> None:
        for streams, has_failed in children:
            for stream in streams:
                self._names[stream.step, stream.index, stream.attempt] = stream.name
                if stream.name not in self._finished:
                    self._open[stream.name] = stream
            if has_failed:
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
