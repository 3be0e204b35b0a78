"""The operations on the log streams and events of jobs: read, list, delete, query.

Each operation returns None for any other log group, which moto has. Tokens say where the next page
starts, so they stay valid after a restart.
"""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from batchyard.emulator import log_filter_patterns, log_queries
from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.log_events import (
    LATEST_MS,
    Event,
    Order,
    OutputReader,
    Stream,
    TimeRange,
    event_bytes,
    merge_streams,
    take_page,
)
from batchyard.emulator.log_groups import (
    is_job_log_group,
    let_moto_answer,
    log_group_arn,
    log_group_name,
)
from batchyard.emulator.log_streams import delete_stream, find_stream, list_streams
from batchyard.emulator.state import Document, EndpointState
from batchyard.emulator.user_log_groups import FinishedQuery, LoggedEvent

_MAX_EVENTS = 10_000
_MAX_ANSWER_BYTES = 1 << 20
_MAX_STREAM_NAMES = 100
_MAX_STREAMS = 50
#: FilterLogEvents reads at most this for one answer, and then returns a token, as AWS does.
_MAX_SCANNED_EVENTS = 50_000
_MAX_SCANNED_BYTES = 16 << 20
#: 2024-01-01: FilterLogEvents has newest-first order only for events since then.
_NEWEST_FIRST_SINCE_MS = 1_704_067_200_000
_BAD_TOKEN = "The specified nextToken is invalid."


def _requested_group(state: EndpointState, request: Document) -> str | None:
    """Return the name of the requested log group, or None if it is not a group of jobs."""
    members = ("logGroupName", "logGroupIdentifier")
    groups = [request[member] for member in members if request.get(member)]
    if len(groups) != 1:
        raise _invalid("You must include either logGroupName or logGroupIdentifier, but not both.")
    return log_group_name(groups[0]) if is_job_log_group(state, groups[0]) else None


def _user_streams(state: EndpointState, group: str) -> set[str]:
    """Return the names of the streams of a group that are not of jobs."""
    return {stream["logStreamName"] for stream in state.user_log_groups.describe_streams(group)}


def _require_stream(state: EndpointState, group: str, name: str) -> Stream:
    stream = find_stream(state, group, name)
    if stream is None:
        raise ApiError("ResourceNotFoundException", "The specified log stream does not exist.")
    return stream


# -- GetLogEvents ---------------------------------------------------------------------------------


def get_log_events(state: EndpointState, request: Document) -> Document | None:
    group = _requested_group(state, request)
    if group is None:
        return None
    limit = _read_limit(request, _MAX_EVENTS)
    name = request.get("logStreamName", "")
    if name in _user_streams(state, group):
        return None
    stream = _require_stream(state, group, name)
    with OutputReader(stream.output, state.log_files.short_log_fd) as reader:
        events, position = _read_events(reader, request, limit)
    # At either end of a stream no event follows, and the answer repeats the token.
    first, last = (events[0].start, events[-1].end) if events else (position, position)
    return {
        "events": [_describe_event(event) for event in events],
        "nextForwardToken": f"f/{last:056d}",
        "nextBackwardToken": f"b/{first:056d}",
    }


def _read_events(reader: OutputReader, request: Document, limit: int) -> tuple[list[Event], int]:
    """Return the events of the requested page, oldest first, and the position where it starts."""
    low = reader.position_since(request["startTime"]) if "startTime" in request else 0
    high = reader.end
    if "endTime" in request:
        high = max(low, reader.position_since(request["endTime"]))
    if request.get("nextToken"):
        is_forward, position = _parse_position(request["nextToken"], reader.end)
    else:
        is_forward = request.get("startFromHead", False)
        position = low if is_forward else high
    if is_forward:
        events = reader.forward(max(low, position), high)
        return take_page(events, limit, _MAX_ANSWER_BYTES), position
    events = reader.backward(low, min(position, high))
    return take_page(events, limit, _MAX_ANSWER_BYTES)[::-1], position


def _describe_event(event: Event) -> Document:
    return {
        "timestamp": event.time_ms,
        "message": event.message,
        "ingestionTime": event.time_ms,
    }


# -- FilterLogEvents ------------------------------------------------------------------------------


def filter_log_events(state: EndpointState, request: Document) -> Document | None:
    group = _requested_group(state, request)
    if group is None:
        return None
    limit = _read_limit(request, _MAX_EVENTS)
    if set(request.get("logStreamNames", [""])) <= _user_streams(state, group):
        return None
    matches = log_filter_patterns.compile_pattern(request.get("filterPattern", ""))
    time_range = _read_time_range(request)
    streams = _requested_streams(state, group, request, time_range.low_ms)
    answer: Document = {"events": [], "searchedLogStreams": []}
    events: list[Document] = answer["events"]
    scanned_events = scanned_bytes = answer_bytes = 0
    last_order: Order | None = None
    for order, stream, event in merge_streams(streams, time_range, state.log_files.short_log_fd):
        size = event_bytes(event)
        is_full = len(events) >= limit or (bool(events) and answer_bytes + size > _MAX_ANSWER_BYTES)
        has_scanned_enough = (
            scanned_events >= _MAX_SCANNED_EVENTS or scanned_bytes >= _MAX_SCANNED_BYTES
        )
        if is_full or has_scanned_enough:
            return answer | {"nextToken": _pack_token([time_range.is_oldest_first, last_order])}
        last_order = order
        scanned_events, scanned_bytes = scanned_events + 1, scanned_bytes + size
        if matches is None or matches(event.message):
            answer_bytes += size
            events.append(_describe_filtered_event(stream, event))
    return answer


def _requested_streams(
    state: EndpointState, group: str, request: Document, since_ms: int
) -> Iterable[Stream]:
    stream_names, prefix = request.get("logStreamNames"), request.get("logStreamNamePrefix")
    if stream_names and prefix:
        raise _invalid("logStreamNames and logStreamNamePrefix cannot both be specified.")
    if stream_names and len(stream_names) > _MAX_STREAM_NAMES:
        raise _invalid(f"logStreamNames must have at most {_MAX_STREAM_NAMES} names.")
    if stream_names:
        return [_require_stream(state, group, name) for name in dict.fromkeys(stream_names)]
    streams = list_streams(state, group, since_ms)
    return (stream for stream in streams if not prefix or stream.name.startswith(prefix))


def _describe_filtered_event(stream: Stream, event: Event) -> Document:
    return {
        "logStreamName": stream.name,
        **_describe_event(event),
        "eventId": "{:010d}{:06d}{:02d}{:038d}".format(*stream.key, event.start),
    }


def _read_time_range(request: Document) -> TimeRange:
    """Return the events that FilterLogEvents is to read; a token decides order and start."""
    low_ms, high_ms = request.get("startTime", 0), request.get("endTime", LATEST_MS)
    if not request.get("nextToken"):
        is_oldest_first = request.get("startFromHead", True)
        start_ms = request.get("startTime", LATEST_MS)
        if not is_oldest_first and start_ms < _NEWEST_FIRST_SINCE_MS:
            raise _invalid(
                "startFromHead can be false only for a startTime on or after January 1, 2024."
            )
        return TimeRange(low_ms, high_ms, is_oldest_first)
    match _unpack_token(request["nextToken"]):
        case [bool(is_first), [int(time_ms), int(job), int(child), int(attempt), int(position)]]:
            last_order = (time_ms, job, child, attempt, position)
            if is_first:
                return TimeRange(max(low_ms, time_ms), high_ms, is_first, last_order)
            return TimeRange(low_ms, min(high_ms, time_ms), is_first, last_order)
    raise _invalid(_BAD_TOKEN)


# -- DescribeLogStreams ---------------------------------------------------------------------------


def describe_log_streams(state: EndpointState, request: Document) -> Document | None:
    group = _requested_group(state, request)
    if group is None:
        return None
    limit = _read_limit(request, _MAX_STREAMS)
    prefix = request.get("logStreamNamePrefix", "")
    is_by_time = request.get("orderBy", "LogStreamName") == "LastEventTime"
    if is_by_time and prefix:
        raise _invalid("Cannot order by LastEventTime with a logStreamNamePrefix.")
    is_descending = request.get("descending", False)
    entries = _list_stream_entries(state, group, prefix, is_by_time=is_by_time)
    entries.sort(key=lambda entry: entry[0], reverse=is_descending)
    start = 0
    if request.get("nextToken"):
        keys = [key for key, _ in entries]
        start = _index_after(keys, request["nextToken"], is_descending)
    page = entries[start : start + limit]
    answer = {
        "logStreams": [
            stream if isinstance(stream, dict) else _describe_stream(state, group, stream)
            for _, stream in page
        ]
    }
    if start + limit >= len(entries):
        return answer
    return {**answer, "nextToken": _pack_token(page[-1][0])}


def _list_stream_entries(
    state: EndpointState, group: str, prefix: str, *, is_by_time: bool
) -> list[tuple[tuple[int, str], Stream | Document]]:
    """Return the streams of jobs and of users, each with the key of its place in the order."""
    entries: list[tuple[tuple[int, str], Stream | Document]] = [
        ((_last_event_ms(state, stream) if is_by_time else 0, stream.name), stream)
        for stream in list_streams(state, group)
        if stream.name.startswith(prefix)
    ]
    return entries + [
        ((stream.get("lastEventTimestamp", 0) if is_by_time else 0, name), stream)
        for stream in state.user_log_groups.describe_streams(group)
        if (name := str(stream["logStreamName"])).startswith(prefix)
    ]


def _describe_stream(state: EndpointState, group: str, stream: Stream) -> Document:
    with OutputReader(stream.output, state.log_files.short_log_fd) as reader:
        first = next(reader.forward(0, reader.end), None)
        last = next(reader.backward(0, reader.end), None)
    document: Document = {
        "logStreamName": stream.name,
        "creationTime": stream.output.started_ms,
        "uploadSequenceToken": f"{int(stream.name[-32:], 16):056d}",
        "arn": f"{log_group_arn(state, group)}:log-stream:{stream.name}",
        "storedBytes": 0,
    }
    if first is not None and last is not None:
        document |= {"firstEventTimestamp": first.time_ms, "lastEventTimestamp": last.time_ms}
        document["lastIngestionTime"] = last.time_ms
    return document


def _last_event_ms(state: EndpointState, stream: Stream) -> int:
    """Return the time of the last event of a stream, or 0 if it has no events."""
    output = stream.output
    if output.path is None:
        return (output.ended_ms or 0) if output.short_length else 0
    with OutputReader(output, state.log_files.short_log_fd) as reader:
        last = next(reader.backward(0, reader.end), None)
    return last.time_ms if last is not None else 0


def _index_after(keys: list[tuple[int, str]], token: str, is_descending: bool) -> int:
    """Return the index of the first key after the key in the token."""
    match _unpack_token(token):
        case [int(time_ms), str(name)]:
            key = (time_ms, name)
            if is_descending:
                return len(keys) - bisect_left(keys[::-1], key)
            return bisect_right(keys, key)
    raise _invalid(_BAD_TOKEN)


# -- DeleteLogStream and StartQuery ---------------------------------------------------------------


def delete_log_stream(state: EndpointState, request: Document) -> Document | None:
    group = request["logGroupName"]
    if is_job_log_group(state, group) and delete_stream(state, group, request["logStreamName"]):
        return {}
    let_moto_answer(state, request)
    return None


def start_query(state: EndpointState, request: Document) -> Document | None:
    """StartQuery, if one of the groups is of jobs: the query is run at once."""
    named = [*request.get("logGroupNames", []), *request.get("logGroupIdentifiers", [])]
    named += [request["logGroupName"]] if "logGroupName" in request else []
    groups = list(dict.fromkeys(log_group_name(name) for name in named))
    if not any(is_job_log_group(state, group) for group in groups):
        return None
    for group in groups:
        if not is_job_log_group(state, group) and not state.user_log_groups.has_group(group):
            raise ApiError("ResourceNotFoundException", f"Log group '{group}' does not exist.")
    start_s, end_s = request["startTime"], request["endTime"]
    events = (
        event
        for group in groups
        for event in _list_events(state, group)
        if start_s * 1000 <= event.time_ms <= end_s * 1000
    )
    text = request["queryString"]
    if "limit" in request:
        text = f"{text} | limit {request['limit']}"
    query = FinishedQuery(text, groups, start_s, end_s, log_queries.run_query(text, events))
    return {"queryId": state.user_log_groups.add_query(query)}


def _list_events(state: EndpointState, group: str) -> Iterator[LoggedEvent]:
    yield from state.user_log_groups.list_events(group)
    if is_job_log_group(state, group):
        streams = list_streams(state, group)
        for _, stream, event in merge_streams(
            streams, TimeRange(0, LATEST_MS, True), state.log_files.short_log_fd
        ):
            yield LoggedEvent(group, stream.name, event.time_ms, event.message)


# -- limits and tokens ----------------------------------------------------------------------------


def _read_limit(request: Document, maximum: int) -> int:
    limit: int = request.get("limit", maximum)
    if 1 <= limit <= maximum:
        return limit
    bound = f"less than or equal to {maximum}" if limit > maximum else "greater than or equal to 1"
    raise _invalid(
        f"1 validation error detected: Value '{limit}' at 'limit' failed to satisfy constraint: "
        f"Member must have value {bound}"
    )


def _parse_position(token: str, end: int) -> tuple[bool, int]:
    """Return whether a token of GetLogEvents leads forward, and its position."""
    match = re.fullmatch(r"([fb])/([0-9]{1,56})", token)
    if match is None or int(match[2]) > end:
        raise _invalid(_BAD_TOKEN)
    return match[1] == "f", int(match[2])


def _pack_token(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


def _unpack_token(token: str) -> Any:
    try:
        return json.loads(base64.urlsafe_b64decode(token.encode()))
    except ValueError:
        raise _invalid(_BAD_TOKEN) from None


def _invalid(message: str) -> ApiError:
    return ApiError("InvalidParameterException", message)
