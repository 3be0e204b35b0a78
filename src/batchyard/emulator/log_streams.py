"""CloudWatch Logs of jobs: GetLogEvents, FilterLogEvents, DescribeLogStreams over what the engine keeps on disk.

Each attempt of each child has one log stream (facts, 1.1), made up from the job's document, its rows and the attempts
under way; nothing about logs is kept besides. Tokens say where to go on, so that they hold across a restart.
"""

from __future__ import annotations

import base64
import json
import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from batchyard.embedded.runner import Task
from batchyard.embedded.store import AttemptRow
from batchyard.emulator import log_filter_patterns, names
from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.log_events import (
    LATEST_MS,
    Event,
    Kept,
    Order,
    Output,
    Stream,
    Window,
    merged,
    page_of,
    size_of,
)
from batchyard.emulator.names import AttemptKey
from batchyard.emulator.state import JOB, Document, EndpointState
from batchyard.folder import RunFolder

_MOST_EVENTS = 10_000
_MOST_BYTES = 1 << 20
_MOST_NAMES = 100
_MOST_STREAMS = 50
#: FilterLogEvents looks at no more than this for one answer, and may answer with less than there is, as AWS does
_MOST_SCANNED = 50_000
_MOST_SCANNED_BYTES = 16 << 20
#: 2024-01-01: FilterLogEvents gives nothing older the newest first
_NEWEST_FIRST_SINCE_MS = 1_704_067_200_000
_BAD_TOKEN = "The specified nextToken is invalid."


class LogStreams:
    """Holds short.log open: to be closed. The log book must have been opened before."""

    def __init__(self, yard: EndpointState, folder: RunFolder) -> None:
        self._yard = yard
        self._folder = folder
        self._since_ms = yard.now_ms()
        self._short_log = os.open(folder.short_log, os.O_RDONLY | os.O_CLOEXEC)
        #: jobs by number, as far as somebody has asked
        self._jobs: dict[int, Document] = {}

    def close(self) -> None:
        os.close(self._short_log)

    # -- groups -----------------------------------------------------------------------------------------------

    def owns(self, group: str) -> bool:
        """Whether jobs log, or may log, to the group of this name or ARN. The default group is always there."""
        name = _bare_group(group)
        return name == names.DEFAULT_LOG_GROUP or any(
            group_of(job) == name for job in self._yard.all(JOB)
        )

    def groups(self, prefix: str = "") -> list[Document]:
        """As DescribeLogGroups has them, by name."""
        created: dict[str, int] = {names.DEFAULT_LOG_GROUP: self._since_ms}
        for job in self._yard.all(JOB):
            group = group_of(job)
            if group is not None:
                created[group] = min(created.get(group, job["createdAt"]), job["createdAt"])
        return [
            self._group_document(name, created[name])
            for name in sorted(created)
            if name.startswith(prefix)
        ]

    def _group_document(self, name: str, created_ms: int) -> Document:
        arn = self._group_arn(name)
        return {
            "logGroupName": name,
            "creationTime": created_ms,
            "metricFilterCount": 0,
            "arn": f"{arn}:*",
            "storedBytes": 0,
            "logGroupClass": "STANDARD",
            "logGroupArn": arn,
        }

    def _group_arn(self, name: str) -> str:
        return f"arn:aws:logs:{self._yard.region}:{names.ACCOUNT_ID}:log-group:{name}"

    def _asked_group(self, request: Document) -> str:
        given = [
            request[member]
            for member in ("logGroupName", "logGroupIdentifier")
            if request.get(member)
        ]
        if len(given) != 1:
            raise _wrong(
                "You must include either logGroupName or logGroupIdentifier, but not both."
            )
        if not self.owns(given[0]):
            raise ApiError("ResourceNotFoundException", "The specified log group does not exist.")
        return _bare_group(given[0])

    # -- GetLogEvents -----------------------------------------------------------------------------------------

    def get_log_events(self, request: Document) -> Document:
        most = _limit(request, _MOST_EVENTS)
        stream = self._existing(self._asked_group(request), request.get("logStreamName", ""))
        with Output(stream.kept, self._short_log) as output:
            low = output.since(request["startTime"]) if "startTime" in request else 0
            high = (
                max(low, output.since(request["endTime"])) if "endTime" in request else output.end
            )
            if request.get("nextToken"):
                is_forward, position = _read_position(request["nextToken"], output.end)
            else:
                is_forward = request.get("startFromHead", False)
                position = low if is_forward else high
            if is_forward:
                events = page_of(output.forward(max(low, position), high), most, _MOST_BYTES)
            else:
                events = page_of(output.backward(low, min(position, high)), most, _MOST_BYTES)[::-1]
        # At an end nothing is found, and the same token goes back.
        first, last = (events[0].start, events[-1].end) if events else (position, position)
        return {
            "events": [
                {
                    "timestamp": event.time_ms,
                    "message": event.message,
                    "ingestionTime": event.time_ms,
                }
                for event in events
            ],
            "nextForwardToken": f"f/{last:056d}",
            "nextBackwardToken": f"b/{first:056d}",
        }

    # -- FilterLogEvents --------------------------------------------------------------------------------------

    def filter_log_events(self, request: Document) -> Document:
        group = self._asked_group(request)
        most = _limit(request, _MOST_EVENTS)
        test = log_filter_patterns.compiled(request.get("filterPattern", ""))
        window = _window(request)
        found: list[Document] = []
        scanned, scanned_bytes, found_bytes = 0, 0, 0
        last: Order | None = None
        for order, stream, event in merged(
            self._chosen(group, request, window.low_ms), window, self._short_log
        ):
            size = size_of(event)
            is_full = len(found) >= most or (bool(found) and found_bytes + size > _MOST_BYTES)
            if is_full or scanned >= _MOST_SCANNED or scanned_bytes >= _MOST_SCANNED_BYTES:
                return {
                    "events": found,
                    "searchedLogStreams": [],
                    "nextToken": _packed([window.is_rising, last]),
                }
            last = order
            scanned, scanned_bytes = scanned + 1, scanned_bytes + size
            if test is None or test(event.message):
                found_bytes += size
                found.append(_filtered(stream, event))
        return {"events": found, "searchedLogStreams": []}

    def _chosen(self, group: str, request: Document, since_ms: int) -> Iterable[Stream]:
        wanted, prefix = request.get("logStreamNames"), request.get("logStreamNamePrefix")
        if wanted and prefix:
            raise _wrong("logStreamNames and logStreamNamePrefix cannot both be specified.")
        if wanted and len(wanted) > _MOST_NAMES:
            raise _wrong(f"logStreamNames must have at most {_MOST_NAMES} names.")
        if wanted:
            return [self._existing(group, name) for name in dict.fromkeys(wanted)]
        return (
            stream
            for stream in self._all(group, since_ms)
            if not prefix or stream.name.startswith(prefix)
        )

    # -- DescribeLogStreams -----------------------------------------------------------------------------------

    def describe_log_streams(self, request: Document) -> Document:
        group = self._asked_group(request)
        most = _limit(request, _MOST_STREAMS)
        prefix = request.get("logStreamNamePrefix", "")
        is_by_time = request.get("orderBy", "LogStreamName") == "LastEventTime"
        if is_by_time and prefix:
            raise _wrong("Cannot order by LastEventTime with a logStreamNamePrefix.")
        streams = [stream for stream in self._all(group) if stream.name.startswith(prefix)]
        ordered = sorted(
            ((self._last_ms(stream) if is_by_time else 0, stream.name), stream)
            for stream in streams
        )
        is_falling = request.get("descending", False)
        if is_falling:
            ordered.reverse()
        start = 0
        if request.get("nextToken"):
            start = _index_after([key for key, _ in ordered], request["nextToken"], is_falling)
        page = ordered[start : start + most]
        answer: Document = {
            "logStreams": [self._stream_document(group, stream) for _, stream in page]
        }
        return (
            answer
            if start + most >= len(ordered)
            else {**answer, "nextToken": _packed(page[-1][0])}
        )

    def _stream_document(self, group: str, stream: Stream) -> Document:
        with Output(stream.kept, self._short_log) as output:
            first = next(output.forward(0, output.end), None)
            last = next(output.backward(0, output.end), None)
        document: Document = {
            "logStreamName": stream.name,
            "creationTime": stream.kept.started_ms,
            "uploadSequenceToken": f"{int(stream.name[-32:], 16):056d}",
            "arn": f"{self._group_arn(group)}:log-stream:{stream.name}",
            "storedBytes": 0,
        }
        if first is not None and last is not None:
            document |= {"firstEventTimestamp": first.time_ms, "lastEventTimestamp": last.time_ms}
            document["lastIngestionTime"] = last.time_ms
        return document

    def _last_ms(self, stream: Stream) -> int:
        """The time of its last event; 0 where it has none."""
        kept = stream.kept
        if kept.own is None:
            return (kept.ended_ms or 0) if kept.short_length else 0
        with Output(kept, self._short_log) as output:
            last = next(output.backward(0, output.end), None)
        return last.time_ms if last is not None else 0

    # -- streams ----------------------------------------------------------------------------------------------

    def _all(self, group: str, since_ms: int = 0) -> Iterator[Stream]:
        """The streams of a group; those that have ended before ``since_ms`` may be left out."""
        yard = self._yard
        jobs = [job for job in yard.all(JOB) if group_of(job) == group]
        yard.loop.record({job["jobId"] for job in jobs})
        placed: dict[str, list[Task]] = {}
        for job_id, child in yard.scheduler.placed_children():
            task = yard.loop.running(job_id, child)
            if task is not None and task.started_ms is not None:
                placed.setdefault(job_id, []).append(task)
        for job in jobs:
            job_id = job["jobId"]
            row = yard.loop.row(job_id)
            if row.ended_ms is not None and row.ended_ms < since_ms:
                continue
            own = self._own_logs(job_id)
            for attempt in yard.store.attempts(row.number, started_only=True):
                if attempt.started_ms is not None and attempt.ended_ms >= since_ms:
                    yield self._ended(job, attempt, f"{attempt.child}-{attempt.attempt}.log" in own)
            for task in placed.get(job_id, ()):
                yield self._running(job, row.number, task)

    def _existing(self, group: str, name: str) -> Stream:
        found = self._find(group, name)
        if found is None or found.name != name:
            raise ApiError("ResourceNotFoundException", "The specified log stream does not exist.")
        return found

    def _find(self, group: str, name: str) -> Stream | None:
        """From its name, without a look at the others."""
        yard = self._yard
        key = names.attempt_of(name.rpartition("/")[2], yard.salt)
        job = None if key is None else self.job(key.job_number)
        if key is None or job is None or group_of(job) != group:
            return None
        job_id = job["jobId"]
        yard.loop.record([job_id])
        for attempt in yard.store.attempts(key.job_number, child=key.child):
            if attempt.attempt == key.attempt and attempt.started_ms is not None:
                return self._ended(job, attempt, True)
        task = yard.loop.running(job_id, key.child)
        if task is None or task.attempt != key.attempt or task.started_ms is None:
            return None
        return self._running(job, key.job_number, task)

    def job(self, number: int) -> Document | None:
        """By the engine's number."""
        if number not in self._jobs:
            self._jobs = {
                self._yard.loop.row(job["jobId"]).number: job for job in self._yard.all(JOB)
            }
        return self._jobs.get(number)

    def _own_logs(self, job_id: str) -> frozenset[str]:
        folder = self._folder.logs / job_id
        return frozenset(os.listdir(folder)) if folder.is_dir() else frozenset()

    def _ended(self, job: Document, row: AttemptRow, may_have_own: bool) -> Stream:
        assert row.started_ms is not None
        key = AttemptKey(row.job, row.child, row.attempt)
        own = self._folder.log_of(job["jobId"], row.child, row.attempt) if may_have_own else None
        ended_ms = max(row.started_ms, row.ended_ms)
        length = 0 if row.log_offset is None else row.log_length or 0
        return Stream(
            key,
            self._name(job, key),
            Kept(own, row.started_ms, ended_ms, row.log_offset or 0, length),
        )

    def _running(self, job: Document, number: int, task: Task) -> Stream:
        assert task.started_ms is not None
        key = AttemptKey(number, task.child, task.attempt)
        own = self._folder.log_of(job["jobId"], task.child, task.attempt)
        return Stream(key, self._name(job, key), Kept(own, task.started_ms))

    def _name(self, job: Document, key: AttemptKey) -> str:
        options = job["container"].get("logConfiguration", {}).get("options", {})
        return names.log_stream(
            job["_definition"],
            names.task_id(key, self._yard.salt),
            options.get("awslogs-stream-prefix"),
        )


def group_of(job: Document) -> str | None:
    """The group that a job logs to; None where its log goes elsewhere than to CloudWatch Logs."""
    configuration = job["container"].get("logConfiguration", {})
    if configuration.get("logDriver", "awslogs") != "awslogs":
        return None
    group: str = configuration.get("options", {}).get("awslogs-group", names.DEFAULT_LOG_GROUP)
    return group


def _bare_group(name_or_arn: str) -> str:
    if name_or_arn.startswith("arn:"):
        return name_or_arn.split(":", 6)[-1].removesuffix(":*")
    return name_or_arn


def _filtered(stream: Stream, event: Event) -> Document:
    return {
        "logStreamName": stream.name,
        "timestamp": event.time_ms,
        "message": event.message,
        "ingestionTime": event.time_ms,
        "eventId": "{:010d}{:06d}{:02d}{:038d}".format(*stream.key, event.start),
    }


# -- pages and tokens -------------------------------------------------------------------------------------------


def _limit(request: Document, most: int) -> int:
    limit: int = request.get("limit", most)
    if not 1 <= limit <= most:
        bound = f"less than or equal to {most}" if limit > most else "greater than or equal to 1"
        raise _wrong(
            f"1 validation error detected: Value '{limit}' at 'limit' failed to satisfy constraint: "
            f"Member must have value {bound}"
        )
    return limit


def _window(request: Document) -> Window:
    """What FilterLogEvents is to look at: the token, where there is one, has been told the direction."""
    low_ms, high_ms = request.get("startTime", 0), request.get("endTime", LATEST_MS)
    if not request.get("nextToken"):
        is_rising = request.get("startFromHead", True)
        if not is_rising and request.get("startTime", LATEST_MS) < _NEWEST_FIRST_SINCE_MS:
            raise _wrong(
                "startFromHead can be false only for a startTime on or after January 1, 2024."
            )
        return Window(low_ms, high_ms, is_rising)
    match _unpacked(request["nextToken"]):
        case [bool(is_rising), [int(time_ms), int(job), int(child), int(attempt), int(position)]]:
            after = (time_ms, job, child, attempt, position)
            low_ms, high_ms = (
                (max(low_ms, time_ms), high_ms) if is_rising else (low_ms, min(high_ms, time_ms))
            )
            return Window(low_ms, high_ms, is_rising, after)
    raise _wrong(_BAD_TOKEN)


def _index_after(keys: list[tuple[int, str]], token: str, is_falling: bool) -> int:
    """Where those begin that come after the one of the token."""
    match _unpacked(token):
        case [int(time_ms), str(name)]:
            key = (time_ms, name)
            return (
                len(keys) - bisect_left(keys[::-1], key) if is_falling else bisect_right(keys, key)
            )
    raise _wrong(_BAD_TOKEN)


def _read_position(token: str, end: int) -> tuple[bool, int]:
    found = re.fullmatch(r"([fb])/([0-9]{1,56})", token)
    if found is None or int(found[2]) > end:
        raise _wrong(_BAD_TOKEN)
    return found[1] == "f", int(found[2])


def _packed(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


def _unpacked(token: str) -> Any:
    try:
        return json.loads(base64.urlsafe_b64decode(token.encode()))
    except ValueError:
        raise _wrong(_BAD_TOKEN) from None


def _wrong(message: str) -> ApiError:
    return ApiError("InvalidParameterException", message)
