"""The log streams of a run's tasks, from the journal of launches and the ends of attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from batchyard.batch.jobs import JobState
from batchyard.embedded.store import AttemptRow, JobRow, Store
from batchyard.engines.aws.log_streams import ChildStreams, Stream
from batchyard.engines.base import JobDetail
from batchyard.engines.ecs.launches import LaunchedTask, Launches
from batchyard.engines.ecs.requests import stream_name
from batchyard.plan import Plan


class TaskStreams:
    """See StreamFinder for the contract. No call to AWS is needed."""

    def __init__(self, plan: Plan, launches: Launches, open_store: Callable[[], Store]) -> None:
        self._plan = plan
        self._launches = launches
        self._open_store = open_store

    def find(
        self,
        step: str | None,
        index: int | None,
        *,
        failed_only: bool = False,
        jobs: Sequence[JobDetail] | None = None,
    ) -> Iterator[ChildStreams]:
        self._launches.refresh()
        for row in self._open_store().jobs():
            if step in (None, row.step):
                yield from self._find_of_job(row, index, failed_only)

    def _find_of_job(
        self, row: JobRow, index: int | None, failed_only: bool
    ) -> Iterator[ChildStreams]:
        planned = self._plan.job(row.step)
        ended = {
            (attempt.child, attempt.attempt): attempt
            for attempt in self._open_store().attempts(row.number)
        }
        failed = {child for (child, _), end in ended.items() if end.state == JobState.FAILED}
        launches = [entry for entry in self._launches.list_all() if entry[0][0] == row.number]
        for child, group in groupby(launches, key=lambda entry: entry[0][1]):
            number = planned.index_in_step(child)
            if index not in (None, number) or (failed_only and child not in failed):
                continue
            attempts = [(attempt, launched) for (_, _, attempt), launched in group]
            streams = [
                _make_stream(launched.arn, row.step, number, attempt, ended.get((child, attempt)))
                for attempt, launched in attempts
                if launched.arn and _has_begun(launched, ended.get((child, attempt)))
            ]
            yield ChildStreams(streams, child in failed)

    def describe_missing(self, group: str) -> str:
        return ""


def _has_begun(launched: LaunchedTask, end: AttemptRow | None) -> bool:
    """Return whether the container of a task has run, so that it has a stream."""
    return launched.has_started or (end is not None and end.started_ms is not None)


def _make_stream(arn: str, step: str, index: int, attempt: int, end: AttemptRow | None) -> Stream:
    ended_ms = 0 if end is None else end.ended_ms
    return Stream(stream_name(arn), step, index, attempt, end is not None, ended_ms)
