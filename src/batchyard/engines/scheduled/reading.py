"""Jobs and attempts of the store, as values of the engines' contract. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from batchyard import shard
from batchyard.batch.jobs import JobState
from batchyard.embedded.store import AttemptRow, JobRow
from batchyard.embedded.use_table import UseRow
from batchyard.engines.base import AttemptDetail, CommandCounts, JobDetail
from batchyard.plan import PlannedJob
from batchyard.sampling.samples import SampledUse

#: A look-up is quicker than a call of the class, for a hundred thousand attempts.
_STATES: dict[str | None, JobState | None] = {
    None: None,
    **{state.value: state for state in JobState},
}


def job_detail(row: JobRow, planned: PlannedJob, *, records_commands: bool) -> JobDetail:
    """Return the job of a row; ``records_commands``: whether the store has its commands."""
    counts = dict(zip(JobState, row.counts, strict=True))
    succeeded, failed = counts[JobState.SUCCEEDED], counts[JobState.FAILED]
    if planned.has_several_commands:
        succeeded, failed = row.commands_succeeded, row.commands_failed
    total = count_commands(planned)
    # A child without a command succeeds, too.
    commands = CommandCounts(total, min(succeeded, total), failed)
    are_unknown = planned.has_several_commands or planned.is_dynamic
    return JobDetail(
        id=row.id,
        step=row.step,
        state=JobState(row.state),
        status_reason=row.status_reason,
        size=row.size,
        counts=row.counts,
        attempts=row.attempts,
        created_ms=row.created_ms,
        started_ms=row.started_ms,
        ended_ms=row.ended_ms,
        commands=None if are_unknown and not records_commands else commands,
        is_stopped=row.rest_reason is not None,
    )


def count_commands(planned: PlannedJob) -> int:
    """Return the number of commands of all children of a job."""
    if planned.only_command is not None:
        return planned.size
    if planned.indices is None:
        return planned.command_count
    if not planned.has_list or planned.is_dynamic:
        return planned.size
    return _count_shares(
        planned.command_count, planned.indices, planned.step_size, planned.share_out
    )


@lru_cache(maxsize=64)
def _count_shares(total: int, indices: tuple[int, ...], step_size: int, share_out: str) -> int:
    return sum(len(shard.commands_of(total, index, step_size, share_out)) for index in indices)


def attempt_detail(
    row: AttemptRow, job_id: str, planned: PlannedJob, use: SampledUse | None = None
) -> AttemptDetail:
    return AttemptDetail(
        job_id=job_id,
        step=planned.step,
        index=planned.index_in_step(row.child),
        attempt=row.attempt,
        state=_STATES[row.state],
        exit_code=row.exit_code,
        reason=row.reason,
        status_reason=row.status_reason,
        started_ms=row.started_ms,
        ended_ms=row.ended_ms,
        user_s=row.user_s,
        system_s=row.system_s,
        max_rss_kib=row.max_rss_kib,
        gpus=tuple(map(int, row.gpus.split(","))) if row.gpus else (),
        host=row.place,
        use=use,
    )


def join_uses(
    rows: Iterable[AttemptRow], uses: Iterable[UseRow]
) -> Iterator[tuple[AttemptRow, SampledUse | None]]:
    """Return each attempt with its use. Both are sorted by child and attempt."""
    remaining = iter(uses)
    next_use = next(remaining, None)
    for row in rows:
        key = (row.child, row.attempt)
        while next_use is not None and (next_use.child, next_use.attempt) < key:
            next_use = next(remaining, None)
        is_same = next_use is not None and (next_use.child, next_use.attempt) == key
        yield row, next_use.use if next_use is not None and is_same else None


def child_of(planned: PlannedJob, index: int) -> int | None:
    """Return the number of a child in its job from its index in the step; None if missing."""
    if planned.indices is None:
        return index if 0 <= index < planned.size else None
    return planned.indices.index(index) if index in planned.indices else None
