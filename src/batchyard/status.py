"""What a run looks like from outside: jobs rolled up to steps, steps to a run. Pure, but for asking the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from batchyard.batch.jobs import JobState
from batchyard.engines.base import AttemptDetail, JobDetail, Overview, RunEngine, RunState
from batchyard.runs import Record

if TYPE_CHECKING:
    from batchyard.engines.aws.details import Wait

#: how many failed children are shown in full
MAX_FAILURES = 5
TAIL_LINES = 10

_ACTIVE = (JobState.STARTING, JobState.RUNNING)
_WAITING = (JobState.SUBMITTED, JobState.PENDING, JobState.RUNNABLE)


@dataclass(frozen=True, slots=True)
class StepStatus:
    name: str
    state: JobState
    size: int
    succeeded: int
    failed: int
    running: int
    waiting: int
    #: attempts that have ended
    attempts: int
    reason: str
    started_ms: int | None
    ended_ms: int | None


@dataclass(frozen=True, slots=True)
class Failure:
    """A child that failed for good, with the end of its output."""

    attempt: AttemptDetail
    log_tail: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunStatus:
    run: str
    pipeline: str
    engine: str
    state: RunState
    started_ms: int | None
    ended_ms: int | None
    steps: tuple[StepStatus, ...]
    failures: tuple[Failure, ...] = ()
    #: not over, and no process is at it
    is_interrupted: bool = False
    #: the run whose unfinished part this is
    retry_of: str | None = None
    #: on AWS: who waits for a host
    waits: tuple[Wait, ...] = ()


def of_run(record: Record, *, max_failures: int = MAX_FAILURES) -> RunStatus:
    return of_engine(record, record.open_engine(), max_failures=max_failures)


def of_engine(record: Record, engine: RunEngine, *, max_failures: int = MAX_FAILURES) -> RunStatus:
    """``max_failures`` 0: only what one question answers. The engine is closed, and may be asked again."""
    try:
        overview = engine.overview()
        details = overview.jobs
        failures = []
        if max_failures and any(detail.count(JobState.FAILED) for detail in details):
            for attempt in engine.attempts(engine.job_ids, failed_only=True):
                if attempt.attempt:
                    failures.append(
                        Failure(attempt, tuple(engine.log_reader.tail(attempt, TAIL_LINES)))
                    )
                if len(failures) >= max_failures:
                    break
        return RunStatus(
            run=record.run_id,
            pipeline=record.plan.pipeline,
            engine=record.engine,
            state=overview.state,
            started_ms=overview.started_ms or record.created_ms,
            ended_ms=overview.ended_ms,
            steps=tuple(step_status(jobs) for jobs in _by_step(details)),
            failures=tuple(failures),
            is_interrupted=overview.is_interrupted,
            retry_of=record.retry_of,
            waits=waits_for_hosts(record, engine, overview) if max_failures else (),
        )
    finally:
        engine.close()


def waits_for_hosts(record: Record, engine: RunEngine, overview: Overview) -> tuple[Wait, ...]:
    """On AWS, by a call for each array with children that wait. AWS does not say since when a job is RUNNABLE: since it
    was created, or since what it needs has ended."""
    if record.is_local or overview.state is not RunState.RUNNING:
        return ()
    from batchyard.engines.aws.engine import AwsEngine

    assert isinstance(engine, AwsEngine)
    ended = {detail.step: detail.ended_ms or 0 for detail in overview.jobs}
    needed = {
        job.step: max((ended.get(need.step, 0) for need in job.needs), default=0)
        for job in record.plan.jobs
    }
    return tuple(
        replace(wait, since_ms=max(wait.since_ms, needed[wait.step]))
        for wait in engine.waits(overview.jobs)
    )


def _by_step(details: Sequence[JobDetail]) -> list[list[JobDetail]]:
    found: dict[str, list[JobDetail]] = {}
    for detail in details:
        found.setdefault(detail.step, []).append(detail)
    return list(found.values())


def step_status(jobs: Sequence[JobDetail]) -> StepStatus:
    """One step from its jobs: one here, several where AWS's limits split an array."""
    counts = [sum(column) for column in zip(*(job.counts for job in jobs), strict=True)]
    by_state = dict(zip(JobState, counts, strict=True))
    started = [job.started_ms for job in jobs if job.started_ms is not None]
    ended = [job.ended_ms for job in jobs if job.ended_ms is not None]
    return StepStatus(
        name=jobs[0].step,
        state=rolled_up(by_state),
        size=sum(job.size for job in jobs),
        succeeded=by_state[JobState.SUCCEEDED],
        failed=by_state[JobState.FAILED],
        running=sum(by_state[state] for state in _ACTIVE),
        waiting=sum(by_state[state] for state in _WAITING),
        attempts=sum(job.attempts for job in jobs),
        reason=next((job.status_reason for job in jobs if job.state is JobState.FAILED), ""),
        started_ms=min(started, default=None),
        ended_ms=max(ended) if len(ended) == len(jobs) else None,
    )


def rolled_up(counts: dict[JobState, int]) -> JobState:
    """RUNNING as soon as one child is, else the least advanced; FAILED once all have ended and one failed."""
    if counts[JobState.RUNNING]:
        return JobState.RUNNING
    for state in JobState:
        if counts[state] and not state.is_terminal:
            return state
    return JobState.FAILED if counts[JobState.FAILED] else JobState.SUCCEEDED


def to_json(status: RunStatus) -> dict[str, Any]:
    """The documented shape of ``status --json`` and ``run --json``."""
    return {
        "run": status.run,
        "pipeline": status.pipeline,
        "engine": status.engine,
        "state": status.state.value,
        "started": iso(status.started_ms),
        "ended": iso(status.ended_ms),
        "interrupted": status.is_interrupted,
        "retry_of": status.retry_of,
        "steps": [
            {
                "name": step.name,
                "state": step.state.value,
                "size": step.size,
                "succeeded": step.succeeded,
                "failed": step.failed,
                "running": step.running,
                "waiting": step.waiting,
                "attempts": step.attempts,
                "reason": step.reason,
            }
            for step in status.steps
        ],
        "failures": [
            {
                "step": failure.attempt.step,
                "index": failure.attempt.index,
                "attempt": failure.attempt.attempt,
                "exit_code": failure.attempt.exit_code,
                "reason": explained(failure.attempt),
                "log_tail": list(failure.log_tail),
            }
            for failure in status.failures
        ],
        "runnable": [
            {
                "step": wait.step,
                "children": wait.count,
                "job": wait.job_id,
                "since": iso(wait.since_ms),
            }
            for wait in status.waits
        ],
    }


#: what the codes that shells and kernels use mean to a person
_EXIT_CODES = {
    126: "the program was found but could not be executed: check its permissions and its `#!` line",
    127: "the program was not found: check its name and PATH",
    137: "killed (SIGKILL)",
    139: "crashed (segmentation fault)",
    143: "ended by SIGTERM",
}


def explained(attempt: AttemptDetail) -> str:
    """Why an attempt failed, in one line."""
    if attempt.reason:
        return attempt.reason
    if attempt.exit_code is None or attempt.status_reason != "Essential container in task exited":
        return attempt.status_reason
    meaning = _EXIT_CODES.get(attempt.exit_code)
    return f"exit code {attempt.exit_code}" + (f": {meaning}" if meaning else "")


def iso(at_ms: int | None) -> str | None:
    if at_ms is None:
        return None
    return (
        datetime.fromtimestamp(at_ms / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
