"""CloudWatch Logs: read the events of streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchyard.aws.session import AwsRefusedError, AwsSession, naming_errors


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

    def read_events(
        self, group: str, streams: Sequence[str], start_ms: int
    ) -> tuple[list[Any], set[str]]:
        """Return the events of up to 100 streams since a time, and the streams that do not exist.

        AWS refuses a request that names a stream which does not exist, and does not say which one.
        Then halves of the streams are read.
        """
        try:
            return self._filter_events(group, streams, start_ms), set()
        except AwsRefusedError as exc:
            if exc.code != "ResourceNotFoundException" or "log group" in exc.message:
                raise
        if len(streams) == 1:
            return [], set(streams)
        middle = len(streams) // 2
        events, missing = self.read_events(group, streams[:middle], start_ms)
        more_events, more_missing = self.read_events(group, streams[middle:], start_ms)
        return [*events, *more_events], missing | more_missing

    def group_events(self, group: str, start_ms: int) -> list[Any]:
        """Return the events of all streams of a group since a time; none if it does not exist."""
        try:
            with naming_errors(f"read the logs of {group}"):
                pages = (
                    self._session.client("logs")
                    .get_paginator("filter_log_events")
                    .paginate(logGroupName=group, startTime=start_ms)
                )
                return [event for page in pages for event in page["events"]]
        except AwsRefusedError as exc:
            if exc.code == "ResourceNotFoundException":
                return []
            raise

    def _filter_events(self, group: str, streams: Sequence[str], start_ms: int) -> list[Any]:
        with naming_errors("read the logs"):
            pages = (
                self._session.client("logs")
                .get_paginator("filter_log_events")
                .paginate(logGroupName=group, logStreamNames=list(streams), startTime=start_ms)
            )
            return [event for page in pages for event in page["events"]]
