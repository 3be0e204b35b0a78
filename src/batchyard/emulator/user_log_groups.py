"""The log groups that users create: the seam to the service that has them, which is moto."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol


class LoggedEvent(NamedTuple):
    group: str
    stream: str
    time_ms: int
    message: str


class FinishedQuery(NamedTuple):
    """A query of CloudWatch Logs Insights and its result."""

    text: str
    groups: Sequence[str]
    start_s: int
    end_s: int
    #: Field -> value, for each row.
    rows: list[dict[str, str]]


class UserLogGroups(Protocol):
    """Log groups beside those of jobs. A group of jobs that users change is there too."""

    def has_group(self, name: str) -> bool: ...

    def add_group(self, name: str) -> None:
        """Create a group. Does nothing if it exists."""

    def was_deleted(self, name: str) -> bool:
        """Return whether a group was here before and is not any more."""

    def describe_streams(self, name: str) -> list[dict[str, Any]]:
        """Return the streams of a group as DescribeLogStreams does; none if it does not exist."""

    def list_events(self, name: str) -> Iterator[LoggedEvent]:
        """Yield the events of all streams of a group; none if it does not exist."""

    def add_query(self, query: FinishedQuery) -> str:
        """Keep the result of a query for GetQueryResults; return the id of the query."""


class NoUserLogGroups:
    """For tests: there are no other log groups, and none can be created."""

    def has_group(self, name: str) -> bool:
        return False

    def add_group(self, name: str) -> None:
        pass

    def was_deleted(self, name: str) -> bool:
        return False

    def describe_streams(self, name: str) -> list[dict[str, Any]]:
        return []

    def list_events(self, name: str) -> Iterator[LoggedEvent]:
        return iter(())

    def add_query(self, query: FinishedQuery) -> str:
        return "no-query"
