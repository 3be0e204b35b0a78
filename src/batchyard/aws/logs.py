"""CloudWatch Logs: the events of streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from batchyard.aws.session import AwsRefusedError, AwsSession, naming_errors

_MOST_STREAMS = 100


class Logs:
    def __init__(self, session: AwsSession) -> None:
        self._session = session

    def events(
        self, group: str, stream: str, token: str | None = None
    ) -> tuple[list[Any], str | None]:
        """All events after the token, and the token for the next time. A stream that is not there yet has none."""
        found: list[Any] = []
        while True:
            request = {"logGroupName": group, "logStreamName": stream, "startFromHead": True}
            try:
                with naming_errors(f"read the log {stream}"):
                    answer = self._session.client("logs").get_log_events(
                        **request, **({"nextToken": token} if token else {})
                    )
            except AwsRefusedError as exc:
                if exc.code == "ResourceNotFoundException":
                    return found, token
                raise
            found += answer["events"]
            after = answer["nextForwardToken"]
            if after == token:
                return found, token
            token = after

    def last(self, group: str, stream: str, count: int) -> list[str]:
        """The last lines of a stream."""
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

    def filtered(self, group: str, streams: Sequence[str], start_ms: int) -> Iterator[Any]:
        """The events of many streams since a time, in order of time within each hundred streams."""
        for first in range(0, len(streams), _MOST_STREAMS):
            some = list(streams[first : first + _MOST_STREAMS])
            with naming_errors("read the logs"):
                pages = (
                    self._session.client("logs")
                    .get_paginator("filter_log_events")
                    .paginate(logGroupName=group, logStreamNames=some, startTime=start_ms)
                )
                for page in pages:
                    yield from page["events"]
