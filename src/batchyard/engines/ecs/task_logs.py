"""The log streams of a run's tasks, from the journal of launches and the ends of attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from batchyard.batch.jobs import JobState
from batchyard.embedded.store import AttemptRow, JobRow, Store
from batchyard.engines.aws.log_streams import ChildStreams, Stream
from batchyard.engines.base import JobDetail
from batchyard.engines.ecs.launches import Launches
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
        by_child: dict[int, list[Stream]] = {}
        for (job, child, attempt), launched in self._launches.list_all():
            number = planned.index_in_step(child) if job == row.number else None
            if number is None or index not in (None, number) or launched.arn is None:
                continue
            end = ended.get((child, attempt))
            if launched.has_started or (end is not None and end.started_ms is not None):
                stream = _make_stream(launched.arn, row.step, number, attempt, end)
                by_child.setdefault(child, []).append(stream)
        failed = {key[0] for key, attempt in ended.items() if attempt.state == JobState.FAILED}
        for child, streams in by_child.items():
            if not failed_only or child in failed:
                yield ChildStreams(streams, child in failed)

    def describe_missing(self, group: str) -> str:
        return ""


def _make_stream(arn: str, step: str, index: int, attempt: int, end: AttemptRow | None) -> Stream:
    ended_ms = 0 if end is None else end.ended_ms
    return Stream(stream_name(arn), step, index, attempt, end is not None, ended_ms)
