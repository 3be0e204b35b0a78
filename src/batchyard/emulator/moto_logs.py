"""The log groups of users in moto. Only this module knows moto's CloudWatch Logs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from batchyard.emulator import names
from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.user_log_groups import FinishedQuery, LoggedEvent

if TYPE_CHECKING:
    from moto.logs.models import LogGroup, LogsBackend


class MotoLogGroups:
    """The log groups of one region.

    A region that this moto does not know has no groups but those of jobs.
    """

    def __init__(self, region: str) -> None:
        self._region = region
        #: Groups that were found or created here. A stack can delete them inside moto.
        self._known_names: set[str] = set()

    def has_group(self, name: str) -> bool:
        has_group = name in self._groups()
        if has_group:
            self._known_names.add(name)
        return has_group

    def add_group(self, name: str) -> None:
        backend = self._backend()
        if backend is not None:
            backend.ensure_log_group(name)
            self._known_names.add(name)

    def was_deleted(self, name: str) -> bool:
        return name in self._known_names and name not in self._groups()

    def describe_streams(self, name: str) -> list[dict[str, Any]]:
        group = self._groups().get(name)
        return [] if group is None else [s.to_describe_dict() for s in group.streams.values()]

    def list_events(self, name: str) -> Iterator[LoggedEvent]:
        group = self._groups().get(name)
        for stream_name, stream in () if group is None else group.streams.items():
            for event in stream.events:
                yield LoggedEvent(name, stream_name, event.timestamp, event.message)

    def add_query(self, query: FinishedQuery) -> str:
        from moto.logs.models import LogQuery

        backend = self._backend()
        if backend is None:
            raise ApiError("InvalidParameterException", f"no queries in region {self._region}")
        query_id = str(uuid.uuid4())
        # Without groups, moto's own search, which knows no filters, finds nothing.
        moto_query = LogQuery(query_id, query.start_s, query.end_s, "fields @message", [])
        moto_query.query = query.text
        moto_query.log_group_names = list(query.groups)
        moto_query.results = query.rows
        backend.queries[query_id] = moto_query
        return query_id

    def _groups(self) -> dict[str, LogGroup]:
        backend = self._backend()
        return {} if backend is None else backend.groups

    def _backend(self) -> LogsBackend | None:
        from moto.logs.models import logs_backends

        try:
            return logs_backends[names.ACCOUNT_ID][self._region]
        except KeyError:
            return None
