"""The status of a run: the states of its jobs, rolled up to steps and to the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from batchyard.batch.jobs import JobState, Resources, StatusReason
from batchyard.command_texts import CommandTexts
from batchyard.engines.base import (
    AttemptDetail,
    CommandCounts,
    CommandDetail,
    FallbackRun,
    JobDetail,
    MemoryExcess,
    Overview,
    RunEngine,
    RunRecord,
    RunState,
    Wait,
)
from batchyard.errors import BatchyardError
from batchyard.plan import PlannedJob
from batchyard.quick_dataclasses import dataclass
from batchyard.sampling.samples import SampledUse, combine_steps
from batchyard.sampling.samples import to_json as use_to_json
from batchyard.units import format_memory, pluralize

#: Number of failed children whose output is shown.
MAX_FAILURES = 5
TAIL_LINES = 10
_TAIL_BYTES = 64 * 1024

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
    #: Number of attempts that have ended.
    attempts: int
    reason: str
    started_ms: int | None
    ended_ms: int | None
    #: Numbers of its commands; None if the engine does not know them.
    commands: CommandCounts | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A child that failed for good, or one of its commands, with the end of the output."""

    attempt: AttemptDetail
    log_tail: tuple[str, ...]
    #: The command that failed, of a child with several commands; else None.
    command: CommandDetail | None = None
    #: The command that failed, of a step with a list; empty if it is not known.
    text: str = ""

    @property
    def exit_code(self) -> int | None:
        return self.attempt.exit_code if self.command is None else self.command.exit_code

    @property
    def reason(self) -> str:
        """Why the child or command failed, in one line."""
        if self.command is None or self.command.exit_code is None:
            return explain_failure(self.attempt)
        return explain_exit_code(self.command.exit_code)


@dataclass(frozen=True, slots=True)
class StepUseStatus:
    """What the sampled children of a step have used, and what each of them has requested."""

    step: str
    requested: Resources
    use: SampledUse


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
    #: Why no process executes the run although it is not over; empty otherwise.
    interruption: str = ""
    #: The run whose unfinished part this run executes.
    retry_of: str | None = None
    #: Children that wait for a host.
    waits: tuple[Wait, ...] = ()
    #: Notes about the status itself: its source if not the engine, and what could not be read.
    notes: tuple[str, ...] = ()
    #: Steps whose children AWS Batch would have killed because of their memory.
    memory_excesses: tuple[MemoryExcess, ...] = ()
    #: Where children go on that spot instances did not finish; None if there is no such run.
    fallback: FallbackRun | None = None
    #: Children of this run that are on demand because spot instances did not finish them.
    moved_children: int = 0
    #: Why no further child starts, or was started, because of the cap; empty if there is no reason.
    held: str = ""
    #: Steps of which samples were taken.
    uses: tuple[StepUseStatus, ...] = ()

    @property
    def is_interrupted(self) -> bool:
        return bool(self.interruption)


def of_run(record: RunRecord, *, max_failures: int = MAX_FAILURES) -> RunStatus:
    """Return the state of a run, with its first failures."""
    return of_engine(record, record.open(), max_failures=max_failures)


def of_engine(
    record: RunRecord, engine: RunEngine, *, max_failures: int = MAX_FAILURES
) -> RunStatus:
    """Return the status of an opened run. Closes the engine, which can be used again.

    With ``max_failures`` 0 there are no failures and no waits, and the engine is asked only once.
    """
    try:
        overview = engine.overview()
        failures: tuple[Failure, ...] = ()
        waits: tuple[Wait, ...] = ()
        notes: tuple[str, ...] = ()
        uses: tuple[StepUseStatus, ...] = ()
        if max_failures:
            uses = tuple(_find_uses(record, engine))
            try:
                failures = tuple(islice(_failures(record, engine, overview), max_failures))
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
            memory_excesses=overview.memory_excesses,
            fallback=overview.fallback,
            moved_children=overview.moved_children,
            held=overview.held,
            uses=uses,
        )
    finally:
        engine.close()


def _find_uses(record: RunRecord, engine: RunEngine) -> Iterator[StepUseStatus]:
    by_step = combine_steps(engine.step_uses(asks=False), engine.running_uses())
    for job in record.plan.jobs:
        if job.step in by_step:
            yield StepUseStatus(job.step, job.resources, by_step[job.step].total)


def find_waits(engine: RunEngine, overview: Overview) -> tuple[Wait, ...]:
    """Return the children of a running run that wait for a host."""
    if overview.state is not RunState.RUNNING:
        return ()
    return tuple(engine.waits(overview.jobs) or ())


def _failures(record: RunRecord, engine: RunEngine, overview: Overview) -> Iterator[Failure]:
    if not any(job.count(JobState.FAILED) for job in overview.jobs):
        return
    texts = CommandTexts(record)
    #: Step -> its commands that failed.
    by_step: dict[str, list[CommandDetail]] = {}
    for attempt in engine.attempts(engine.job_ids, failed_only=True):
        planned = record.plan.job(attempt.step)
        are_claimed = planned.is_dynamic and record.engine.claims_commands
        if not attempt.attempt:
            continue
        if not planned.has_several_commands and not are_claimed:
            yield _failure_of_child(engine, planned, attempt, texts)
            continue
        is_first = attempt.step not in by_step
        if is_first:
            by_step[attempt.step] = list(engine.commands(attempt.step, failed_only=True))
        commands = by_step[attempt.step]
        if are_claimed and is_first:
            # A child also fails for commands of another one, whose block it has taken over.
            yield from (_failure_of_claimed(engine, attempt, c, texts) for c in commands)
        elif not are_claimed:
            commands = [command for command in commands if command.index == attempt.index]
            yield from (_failure_of_command(engine, attempt, c, texts) for c in commands)
        if not commands:
            yield Failure(attempt, tuple(engine.log_reader.tail(attempt, TAIL_LINES)))


def _failure_of_child(
    engine: RunEngine, planned: PlannedJob, attempt: AttemptDetail, texts: CommandTexts
) -> Failure:
    tail = tuple(engine.log_reader.tail(attempt, TAIL_LINES))
    numbers = planned.commands_of_index(attempt.index)
    text = texts.text_of(attempt.step, numbers[0]) if planned.has_list and numbers else ""
    return Failure(attempt, tail, text=text)


def _failure_of_claimed(
    engine: RunEngine, attempt: AttemptDetail, command: CommandDetail, texts: CommandTexts
) -> Failure:
    owner = replace(attempt, index=command.index, attempt=command.child_attempt)
    return _failure_of_command(engine, owner, command, texts)


def _failure_of_command(
    engine: RunEngine, attempt: AttemptDetail, command: CommandDetail, texts: CommandTexts
) -> Failure:
    text = texts.text_of(command.step, command.number)
    return Failure(attempt, _tail_of(engine, command), command, text)


def _tail_of(engine: RunEngine, command: CommandDetail) -> tuple[str, ...]:
    output = engine.log_reader.read_command(command, _TAIL_BYTES)
    return tuple(output.decode(errors="replace").splitlines()[-TAIL_LINES:])


def step_statuses(jobs: Sequence[JobDetail]) -> list[StepStatus]:
    """Return the steps that these jobs belong to, in the order of the jobs."""
    by_step: dict[str, list[JobDetail]] = {}
    for job in jobs:
        by_step.setdefault(job.step, []).append(job)
    return [step_status(step_jobs) for step_jobs in by_step.values()]


def step_status(jobs: Sequence[JobDetail]) -> StepStatus:
    """Return the status of one step, which can have several jobs on AWS Batch."""
    by_state = {state: sum(job.count(state) for job in jobs) for state in JobState}
    started_ms, ended_ms = _span_ms(jobs)
    return StepStatus(
        name=jobs[0].step,
        state=roll_up(by_state),
        size=sum(job.size for job in jobs),
        succeeded=by_state[JobState.SUCCEEDED],
        failed=by_state[JobState.FAILED],
        running=sum(by_state[state] for state in _ACTIVE),
        waiting=sum(by_state[state] for state in _WAITING),
        attempts=sum(job.attempts for job in jobs),
        reason=_find_reason(jobs),
        started_ms=started_ms,
        ended_ms=ended_ms,
        commands=_sum_commands(jobs),
    )


def _find_reason(jobs: Sequence[JobDetail]) -> str:
    """Return why a step failed, as if its children were one array; empty if no job has failed."""
    reasons = [job.status_reason for job in jobs if job.state is JobState.FAILED]
    own_reasons = [reason for reason in reasons if reason != StatusReason.DEPENDENCY_FAILED]
    if own_reasons:
        return own_reasons[0]
    # Of the children, only some waited for one that failed.
    if 0 < len(reasons) < len(jobs):
        return StatusReason.CHILD_FAILED
    return reasons[0] if reasons else ""


def _sum_commands(jobs: Sequence[JobDetail]) -> CommandCounts | None:
    counts = [job.commands for job in jobs if job.commands is not None]
    if len(counts) < len(jobs):
        return None
    return CommandCounts(
        sum(count.total for count in counts),
        sum(count.succeeded for count in counts),
        sum(count.failed for count in counts),
    )


def _span_ms(jobs: Sequence[JobDetail]) -> tuple[int | None, int | None]:
    """Return the first start, and the last end if all jobs have ended."""
    starts_ms = [job.started_ms for job in jobs if job.started_ms is not None]
    ends_ms = [job.ended_ms for job in jobs if job.ended_ms is not None]
    return min(starts_ms, default=None), max(ends_ms) if len(ends_ms) == len(jobs) else None


def roll_up(counts: dict[JobState, int]) -> JobState:
    """Return the state of a step from the numbers of its children by state.

    RUNNING if a child is RUNNING, else the least advanced state; after the end of all children,
    FAILED if a child has failed.
    """
    if counts[JobState.RUNNING]:
        return JobState.RUNNING
    for state in JobState:
        if counts[state] and not state.is_terminal:
            return state
    return JobState.FAILED if counts[JobState.FAILED] else JobState.SUCCEEDED


def to_json(status: RunStatus) -> dict[str, Any]:
    """Return the document that ``status --json`` and ``run --json`` print."""
    return {
        "run": status.run,
        "pipeline": status.pipeline,
        "engine": status.engine,
        "state": status.state.value,
        "started": iso(status.started_ms),
        "ended": iso(status.ended_ms),
        "interrupted": status.is_interrupted,
        "retry_of": status.retry_of,
        "fallback": None if status.fallback is None else asdict(status.fallback),
        "moved_children": status.moved_children,
        "held": status.held or None,
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
                "commands": None if step.commands is None else asdict(step.commands),
            }
            for step in status.steps
        ],
        "failures": [
            {
                "step": failure.attempt.step,
                "index": failure.attempt.index,
                "attempt": failure.attempt.attempt,
                "command": None if failure.command is None else failure.command.number,
                "text": failure.text,
                "exit_code": failure.exit_code,
                "reason": failure.reason,
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
        "memory_excesses": [
            {
                "step": excess.step,
                "children": excess.children,
                "index": excess.index,
                "peak_mib": excess.peak_kib // 1024,
                "requested_mib": excess.requested_mib,
            }
            for excess in status.memory_excesses
        ],
        "uses": [{"step": entry.step, **use_to_json(entry.use)} for entry in status.uses],
    }


#: Meaning of the exit codes that shells and the kernel use.
_EXIT_CODES = {
    126: "the program was found but could not be executed: check its permissions and its `#!` line",
    127: "the program was not found: check its name and PATH",
    137: "killed (SIGKILL)",
    139: "crashed (segmentation fault)",
    143: "ended by SIGTERM",
}


def explain_failure(attempt: AttemptDetail) -> str:
    """Return in one line why an attempt failed."""
    if attempt.reason:
        return attempt.reason
    if attempt.exit_code is None or attempt.status_reason != StatusReason.EXITED:
        return attempt.status_reason
    return explain_exit_code(attempt.exit_code)


def explain_exit_code(exit_code: int) -> str:
    """Return the exit code, with its meaning if shells or the kernel give it one."""
    meaning = _EXIT_CODES.get(exit_code)
    return f"exit code {exit_code}" + (f": {meaning}" if meaning else "")


def explain_excess(excess: MemoryExcess) -> str:
    """Return in one line how much memory the children of a step used."""
    children = pluralize(excess.children, "child", "children")
    peak = format_memory(excess.peak_kib // 1024)
    requested = format_memory(excess.requested_mib)
    return (
        f"{excess.step}: {children} used more memory than requested "
        f"({excess.step}:{excess.index}: {peak} of {requested}); AWS Batch would kill such a child"
    )


def explain_moves(status: RunStatus) -> list[str]:
    """Return sentences about children that left spot instances, in this run and after it."""
    sentences = []
    if status.moved_children:
        children = pluralize(status.moved_children, "child is", "children are")
        sentences.append(
            f"{children} on demand: spot instances did not finish them in {status.retry_of}"
        )
    fallback = status.fallback
    if fallback is not None:
        moved = pluralize(fallback.reclaimed + fallback.waited, "child", "children")
        sentences.append(
            f"{moved} did not end on spot instances ({fallback.reclaimed} reclaimed,"
            f" {fallback.waited} without a host) and went on, on demand, as {fallback.run_id}"
        )
    return sentences


def iso(at_ms: int | None) -> str | None:
    """Return a time in ISO 8601 with milliseconds, in UTC."""
    if at_ms is None:
        return None
    return (
        datetime.fromtimestamp(at_ms / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
