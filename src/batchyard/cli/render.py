"""What people read: plans, statuses and failures as plain text. Pure: values in, lines out."""

from __future__ import annotations

import click

from batchyard.batch.jobs import JobState, StatusReason
from batchyard.cli.tables import table
from batchyard.engines.base import AttemptDetail, RunState
from batchyard.plan import Plan, PlannedJob
from batchyard.status import MAX_FAILURES, RunStatus, StepStatus, explain_failure
from batchyard.units import format_duration, format_memory, pluralize

_COLOURS = {
    "SUCCEEDED": "green",
    "FAILED": "red",
    "STOPPED": "yellow",
    "RUNNING": "cyan",
    "STARTING": "cyan",
}
_LONGEST_LINE = 500


def coloured(state: str) -> str:
    """click drops the colours where the output is not a terminal."""
    return click.style(state, fg=_COLOURS.get(state))


def status_lines(status: RunStatus, now_ms: int, flags: str = "") -> list[str]:
    """``flags``: what the commands that are suggested need to find the run again."""
    lines = [headline(status, now_ms), ""]
    head = (
        "step",
        "state",
        "children",
        "succeeded",
        "failed",
        "running",
        "waiting",
        "attempts",
        "time",
        "",
    )
    rows = [_step_row(step, now_ms) for step in status.steps]
    lines += table(head, rows, right=frozenset(range(2, 9)))
    sizes = {step.name: step.size for step in status.steps}
    for failure in status.failures:
        attempt = failure.attempt
        tries = f" (attempt {attempt.attempt})" if attempt.attempt > 1 else ""
        name = child_name(attempt.step, attempt.index, sizes[attempt.step])
        lines += ["", click.style(f"{name}{tries}: {explain_failure(attempt)}", fg="red")]
        lines += [f"  | {_short(line)}" for line in failure.log_tail] or ["  | (no output)"]
    lines += _waiting(status, now_ms, flags)
    lines += _what_next(status, flags)
    return lines


def child_name(step: str, index: int, size: int) -> str:
    """`step:index`, or just the step where it has but one child."""
    return f"{step}:{index}" if size > 1 or index else step


def headline(status: RunStatus, now_ms: int) -> str:
    took = ""
    ended_ms = now_ms if status.state is RunState.RUNNING else status.ended_ms
    if status.started_ms is not None and ended_ms is not None:
        took = f" after {_span(status.started_ms, ended_ms)}"
    if status.is_interrupted:
        state = click.style("INTERRUPTED", fg="yellow")
        return f"run {status.run}: {state}: {status.interruption}"
    if status.state is RunState.RUNNING:
        took = took.replace(" after ", " for ")
    return f"run {status.run}: {coloured(status.state.value)}{took}"


def _short(line: str) -> str:
    """One of a program's lines may be megabytes; `logs` has all of it."""
    left = len(line) - _LONGEST_LINE
    return line if left <= 0 else f"{line[:_LONGEST_LINE]}... ({left:,} characters more)"


def plan_lines(plan: Plan) -> list[str]:
    head = (
        "step",
        "children",
        "commands",
        "cpus",
        "memory",
        "gpus",
        "attempts",
        "timeout",
        "after",
    )
    rows = [_plan_row(job) for job in plan.jobs]
    children = sum(job.size for job in plan.jobs)
    title = f"pipeline {plan.pipeline}: {pluralize(len(plan.jobs), 'step')}, {pluralize(children, 'child', 'children')}"
    return [title, "", *table(head, rows, right=frozenset(range(1, 8)))]


def _step_row(step: StepStatus, now_ms: int) -> tuple[str, ...]:
    took = "" if step.started_ms is None else _span(step.started_ms, step.ended_ms or now_ms)
    numbers = (step.size, step.succeeded, step.failed, step.running, step.waiting, step.attempts)
    return (step.name, coloured(step.state.value), *map(str, numbers), took, _why(step))


def _why(step: StepStatus) -> str:
    """The step's reason, where it says more than that a child failed."""
    is_plain = step.reason in (StatusReason.CHILD_FAILED, StatusReason.EXITED)
    return step.reason if step.state is JobState.FAILED and not is_plain else ""


def _plan_row(job: PlannedJob) -> tuple[str, ...]:
    needs = ", ".join(f"{need.step} (each)" if need.each else need.step for need in job.needs)
    return (
        job.step,
        str(job.size),
        _commands(job),
        str(job.resources.vcpus),
        format_memory(job.resources.memory_mib),
        str(job.resources.gpus or "-"),
        str(job.retry.attempts),
        "-" if job.timeout_s is None else format_duration(job.timeout_s),
        needs or "-",
    )


def _commands(job: PlannedJob) -> str:
    """How many in all, and how many a child has."""
    counts = sorted({len(job.commands_of(child)) for child in {0, job.size // 2, job.size - 1}})
    each = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"
    return f"{job.command_count} ({each} a child)" if job.size > 1 else str(job.command_count)


def _waiting(status: RunStatus, now_ms: int, flags: str) -> list[str]:
    lines = []
    for wait in status.waits:
        who = pluralize(wait.count, "child", "children")
        lines.append(
            f"{wait.step}: {who} RUNNABLE for {_span(wait.since_ms, now_ms)}, waiting for a host"
        )
        lines.append(f"  why: batchyard doctor job {wait.job_id} --env {wait.environment}{flags}")
    return ["", *lines] if lines else []


def _what_next(status: RunStatus, flags: str) -> list[str]:
    name = f"{status.run}{flags}"
    if status.is_interrupted:
        return ["", f"go on with it: batchyard resume {name}"]
    if status.state in (RunState.FAILED, RunState.STOPPED):
        more = (
            [f"all failed output: batchyard logs {name} --failed"]
            if len(status.failures) >= MAX_FAILURES
            else []
        )
        if any(_cannot_pull(failure.attempt) for failure in status.failures):
            more.append(
                "the image is not there, or may not be read: check `image:`; `batchyard image push` pushes one"
            )
        return ["", *more, f"run what is left: batchyard retry {name}"]
    return []


def _cannot_pull(attempt: AttemptDetail) -> bool:
    return "CannotPullContainer" in f"{attempt.reason} {attempt.status_reason}"


def _span(start_ms: int, end_ms: int) -> str:
    seconds = max(0.0, (end_ms - start_ms) / 1000)
    return f"{seconds:.1f} s" if seconds < 60 else format_duration(int(seconds))
