"""CloudWatch Logs: read the events of streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from batchyard.aws.session import AwsRefusedError, AwsSession, naming_errors

_MAX_STREAMS = 100


class Logs:
    def __init__(self, session: AwsSession) -> None:
        self._session = session

    def events(
        self, group: str, stream: str, token: str | None = None
    ) -> tuple[list[Any], str | None]:
        """Return all events after the token, and the token to continue from.

        A stream that does not exist yet has no events.
        """
        events: list[Any] = []
        while True:
            request = {"logGroupName": group, "logStreamName": stream, "startFromHead": True}
            try:
                with naming_errors(f"read the log {stream}"):
                    answer = self._session.client("logs").get_log_events(
                        **request, **({"nextToken": token} if token else {})
                    )
            except AwsRefusedError as exc:
                if exc.code == "ResourceNotFoundException":
                    return events, token
                raise
            events += answer["events"]
            next_token = answer["nextForwardToken"]
            if next_token == token:
                return events, token
            token = next_token

    def last_lines(self, group: str, stream: str, count: int) -> list[str]:
        """Return the last lines of a stream."""
        try:
            with naming_errors(f"read the log {stream}"):
                answer = self._session.client("logs").get_log_events(
                    logGroupName=group, logStreamName=stream, startFromHead=False, limit=count
                )
        except AwsRefusedError as exc:
            if exc.code == "ResourceNotFoundException":
                return []
            raise
        return [event["message"] for event in answer["events"]]

    def filter_events(self, group: str, streams: Sequence[str], start_ms: int) -> Iterator[Any]:
        """Yield the events of streams since a time, in order of time within 100 streams."""
        for first in range(0, len(streams), _MAX_STREAMS):
            chunk = list(streams[first : first + _MAX_STREAMS])
            with naming_errors("read the logs"):
                pages = (
                    self._session.client("logs")
                    .get_paginator("filter_log_events")
                    .paginate(logGroupName=group, logStreamNames=chunk, startTime=start_ms)
                )
                for page in pages:
                    yield from page["events"]
