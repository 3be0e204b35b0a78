"""The commands that a run, a retry or a resume would execute, each with the reason."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

from batchyard.batch.jobs import JobState
from batchyard.command_texts import CommandTexts
from batchyard.engines.base import CommandDetail, RunRecord
from batchyard.plan import Plan, PlannedJob, RunPart
from batchyard.quick_dataclasses import dataclass
from batchyard.status import explain_exit_code

#: Step and number of a command -> its text.
TextOf = Callable[[str, int], str]


@dataclass(frozen=True, slots=True)
class PlannedCommand:
    """A command that would run."""

    step: str
    #: Number of the command in the step's list; of a step without a list, of the child.
    number: int
    #: Number of the child in its step; None if a child claims the command at run time.
    index: int | None
    text: str
    #: Why the command would run.
    reason: str


def of_new_run(plan: Plan, *, claims: bool) -> Iterator[PlannedCommand]:
    """Return all commands of a plan. ``claims``: children claim those of dynamic steps."""
    for job in plan.jobs:
        for number, index in _numbers(job, (), claims):
            text = plan.lists[job.step][number] if job.command is None else job.command
            yield PlannedCommand(job.step, number, index, text, "new run")


def of_retry(
    old: RunRecord,
    plan: Plan,
    commands_done: Mapping[str, Sequence[int]],
    part: RunPart | None,
) -> Iterator[PlannedCommand]:
    """Return the commands of a retry with this plan; see ``Repetition``."""
    texts = CommandTexts(old)
    is_asked_for = part is not None and part != RunPart(part.step)
    last = {} if is_asked_for else _read_commands(old)
    for job in plan.jobs:
        done = frozenset(commands_done.get(job.step, ()))
        for number, index in _numbers(job, done, old.engine.claims_commands):
            ending = _ending(last.get((job.step, number)))
            reason = "asked for" if is_asked_for else f"no success record: {ending}"
            yield PlannedCommand(job.step, number, index, texts.text_of(job.step, number), reason)


def count_of_retry(
    plan: Plan, commands_done: Mapping[str, Sequence[int]], *, claims: bool
) -> dict[str, int]:
    """Return step -> number of its commands that a retry with this plan would run."""
    return {
        job.step: sum(1 for _ in _numbers(job, frozenset(commands_done.get(job.step, ())), claims))
        for job in plan.jobs
    }


def of_resume(record: RunRecord) -> Iterator[PlannedCommand]:
    """Return the commands of an interrupted run that are not done.

    Without those of a step that was stopped, as with fail-fast: a resume ends it.
    """
    texts = CommandTexts(record)
    last = _read_commands(record)
    engine = record.open()
    try:
        jobs = engine.overview().jobs
        over_steps = {job.step for job in jobs if job.state.is_terminal or job.is_stopped}
        attempts = engine.attempts(engine.job_ids, failed_only=True)
        failed = {(attempt.step, attempt.index) for attempt in attempts}
    finally:
        engine.close()
    for job in record.plan.jobs:
        if job.step in over_steps:
            continue
        for number, index in _numbers(job, (), record.engine.claims_commands):
            detail = last.get((job.step, number))
            if (detail is None or detail.state is None) and (job.step, index) not in failed:
                text = texts.text_of(job.step, number)
                yield PlannedCommand(job.step, number, index, text, f"not done: {_ending(detail)}")


def to_json(command: PlannedCommand) -> dict[str, Any]:
    """Return a member of `commands` in the JSON of `plan --commands`."""
    return {
        "step": command.step,
        "command": command.number,
        "index": command.index,
        "text": command.text,
        "reason": command.reason,
    }


def _numbers(
    job: PlannedJob, done: Container[int], claims: bool
) -> Iterator[tuple[int, int | None]]:
    """Return the numbers of the commands that are left of a job, each with its child."""
    if job.is_dynamic and claims:
        for number in range(job.command_count):
            if number not in done:
                yield number, None
        return
    # A child of one command that is in the plan runs it, whatever became of it before.
    skipped = done if job.has_several_commands else ()
    for child in range(job.size):
        for number in job.commands_of(child):
            if number not in skipped:
                yield number, job.index_in_step(child)


def _read_commands(record: RunRecord) -> dict[tuple[str, int], CommandDetail]:
    engine = record.open()
    try:
        return {(command.step, command.number): command for command in engine.commands()}
    finally:
        engine.close()


def _ending(detail: CommandDetail | None) -> str:
    """Return how a command ended last."""
    if detail is None or detail.started_ms is None:
        return "never ran"
    if detail.state is JobState.SUCCEEDED:
        return "succeeded, in a child that did not"
    if detail.exit_code is not None and not detail.reason:
        return explain_exit_code(detail.exit_code)
    return detail.reason or "it was interrupted"
