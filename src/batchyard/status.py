"""What a run looks like from outside: jobs rolled up to steps, steps to a run. Pure, but for asking the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from batchyard.batch.jobs import JobState
from batchyard.engines.base import (
    AttemptDetail,
    JobDetail,
    Overview,
    RunEngine,
    RunRecord,
    RunState,
    Wait,
)
from batchyard.errors import BatchyardError

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
    #: Why the run is not over and yet nothing drives it; empty otherwise.
    interruption: str = ""
    #: The run whose unfinished part this run executes.
    retry_of: str | None = None
    #: Children that wait for a host.
    waits: tuple[Wait, ...] = ()
    #: Where the answers came from, if not from the engine itself; what could not be asked.
    notes: tuple[str, ...] = ()

    @property
    def is_interrupted(self) -> bool:
        return bool(self.interruption)


def of_run(record: RunRecord, *, max_failures: int = MAX_FAILURES) -> RunStatus:
    """Return the state of a run, with its first failures."""
    return of_engine(record, record.open(), max_failures=max_failures)


def of_engine(
    record: RunRecord, engine: RunEngine, *, max_failures: int = MAX_FAILURES
) -> RunStatus:
    """Return the state of an opened run. The engine is closed, and may be used again.

    ``max_failures`` 0: neither failures nor waits, which is one question to the engine.
    """
    try:
        overview = engine.overview()
        failures: tuple[Failure, ...] = ()
        waits: tuple[Wait, ...] = ()
        notes: tuple[str, ...] = ()
        if max_failures:
            try:
                failures = tuple(_failures(engine, overview, max_failures))
                waits = find_waits(engine, overview)
            except BatchyardError as exc:
                if not engine.is_over_by_record:
                    raise
                notes = (f"only the stored record is shown: {exc.message}",)
            notes += (engine.answer_source,) if engine.answer_source else ()
        return RunStatus(
            run=record.run_id,
            pipeline=record.plan.pipeline,
            engine=record.engine.name,
            state=overview.state,
            started_ms=overview.started_ms or record.created_ms,
            ended_ms=overview.ended_ms,
            steps=tuple(step_statuses(overview.jobs)),
            failures=failures,
            interruption=overview.interruption,
            retry_of=record.retry_of,
            waits=waits,
            notes=notes,
        )
    finally:
        engine.close()


def find_waits(engine: RunEngine, overview: Overview) -> tuple[Wait, ...]:
    """Return the children of a running run that wait for a host."""
    if overview.state is not RunState.RUNNING:
        return ()
    return tuple(engine.waits(overview.jobs) or ())


def _failures(engine: RunEngine, overview: Overview, max_failures: int) -> Iterator[Failure]:
    if not any(job.count(JobState.FAILED) for job in overview.jobs):
        return
    count = 0
    for attempt in engine.attempts(engine.job_ids, failed_only=True):
        if attempt.attempt:
            yield Failure(attempt, tuple(engine.log_reader.tail(attempt, TAIL_LINES)))
            count += 1
        if count >= max_failures:
            return


def step_statuses(jobs: Sequence[JobDetail]) -> list[StepStatus]:
    """Return the steps that these jobs belong to, in the order of the jobs."""
    by_step: dict[str, list[JobDetail]] = {}
    for job in jobs:
        by_step.setdefault(job.step, []).append(job)
    return [step_status(step_jobs) for step_jobs in by_step.values()]


def step_status(jobs: Sequence[JobDetail]) -> StepStatus:
    """One step from its jobs: one here, several where AWS's limits split an array."""
    counts = [sum(column) for column in zip(*(job.counts for job in jobs), strict=True)]
    by_state = dict(zip(JobState, counts, strict=True))
    started = [job.started_ms for job in jobs if job.started_ms is not None]
    ended = [job.ended_ms for job in jobs if job.ended_ms is not None]
    return StepStatus(
        name=jobs[0].step,
        state=roll_up(by_state),
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


def roll_up(counts: dict[JobState, int]) -> JobState:
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
                "reason": explain_failure(failure.attempt),
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


def explain_failure(attempt: AttemptDetail) -> str:
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
