"""Plans, statuses and failures as lines of text for people. Pure."""

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
_MAX_LINE_LENGTH = 500


def colour_state(state: str) -> str:
    """Return the state in its colour. click removes colours if the output is no terminal."""
    return click.style(state, fg=_COLOURS.get(state))


def status_lines(status: RunStatus, now_ms: int, flags: str = "") -> list[str]:
    """Return the status of a run.

    ``flags`` are added to the commands that the text suggests, so that they find the run.
    """
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
        number = f" (attempt {attempt.attempt})" if attempt.attempt > 1 else ""
        name = child_name(attempt.step, attempt.index, sizes[attempt.step])
        lines += ["", click.style(f"{name}{number}: {explain_failure(attempt)}", fg="red")]
        lines += [f"  | {_truncate(line)}" for line in failure.log_tail] or ["  | (no output)"]
    lines += _wait_lines(status, now_ms, flags)
    lines += _next_commands(status, flags)
    return lines


def child_name(step: str, index: int, size: int) -> str:
    """Return `step:index`, or only the step if it has a single child."""
    return f"{step}:{index}" if size > 1 or index else step


def headline(status: RunStatus, now_ms: int) -> str:
    """Return the run's id and state, and how long it took or has been running."""
    if status.is_interrupted:
        state = click.style("INTERRUPTED", fg="yellow")
        return f"run {status.run}: {state}: {status.interruption}"
    is_running = status.state is RunState.RUNNING
    end_ms = now_ms if is_running else status.ended_ms
    duration = ""
    if status.started_ms is not None and end_ms is not None:
        preposition = "for" if is_running else "after"
        duration = f" {preposition} {_format_span(status.started_ms, end_ms)}"
    return f"run {status.run}: {colour_state(status.state.value)}{duration}"


def _truncate(line: str) -> str:
    """Return the line, cut if it is very long; `logs` prints all of it."""
    hidden_count = len(line) - _MAX_LINE_LENGTH
    if hidden_count <= 0:
        return line
    return f"{line[:_MAX_LINE_LENGTH]}... ({hidden_count:,} more characters)"


def plan_lines(plan: Plan) -> list[str]:
    """Return a plan as a table with a row for each step."""
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
    steps = pluralize(len(plan.jobs), "step")
    children = pluralize(sum(job.size for job in plan.jobs), "child", "children")
    title = f"pipeline {plan.pipeline}: {steps}, {children}"
    return [title, "", *table(head, rows, right=frozenset(range(1, 8)))]


def _step_row(step: StepStatus, now_ms: int) -> tuple[str, ...]:
    duration = ""
    if step.started_ms is not None:
        duration = _format_span(step.started_ms, step.ended_ms or now_ms)
    numbers = (step.size, step.succeeded, step.failed, step.running, step.waiting, step.attempts)
    state = colour_state(step.state.value)
    return (step.name, state, *map(str, numbers), duration, _special_reason(step))


def _special_reason(step: StepStatus) -> str:
    """Return the reason of a failed step, unless it only says that a child failed."""
    is_usual = step.reason in (StatusReason.CHILD_FAILED, StatusReason.EXITED)
    return step.reason if step.state is JobState.FAILED and not is_usual else ""


def _plan_row(job: PlannedJob) -> tuple[str, ...]:
    needs = ", ".join(f"{need.step} (each)" if need.each else need.step for need in job.needs)
    return (
        job.step,
        str(job.size),
        _command_counts(job),
        str(job.resources.vcpus),
        format_memory(job.resources.memory_mib),
        str(job.resources.gpus or "-"),
        str(job.retry.attempts),
        "-" if job.timeout_s is None else format_duration(job.timeout_s),
        needs or "-",
    )


def _command_counts(job: PlannedJob) -> str:
    """Return the number of commands of the job, and of each child."""
    counts = sorted({len(job.commands_of(child)) for child in {0, job.size // 2, job.size - 1}})
    per_child = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"
    return f"{job.command_count} ({per_child} a child)" if job.size > 1 else str(job.command_count)


def _wait_lines(status: RunStatus, now_ms: int, flags: str) -> list[str]:
    lines = []
    for wait in status.waits:
        children = pluralize(wait.count, "child", "children")
        duration = _format_span(wait.since_ms, now_ms)
        lines.append(f"{wait.step}: {children} RUNNABLE for {duration}, waiting for a host")
        lines.append(f"  why: batchyard {wait.diagnosis}{flags}")
    return ["", *lines] if lines else []


def _next_commands(status: RunStatus, flags: str) -> list[str]:
    """Return the commands that a user may want next."""
    name = f"{status.run}{flags}"
    if status.is_interrupted:
        return ["", f"resume it: batchyard resume {name}"]
    if status.state not in (RunState.FAILED, RunState.STOPPED):
        return []
    lines = [""]
    if len(status.failures) >= MAX_FAILURES:
        lines.append(f"output of all failed children: batchyard logs {name} --failed")
    if any(_cannot_pull(failure.attempt) for failure in status.failures):
        lines.append(
            "the image does not exist or cannot be pulled: check `image:`, or push one with"
            " `batchyard image push`"
        )
    return [*lines, f"run the unfinished children: batchyard retry {name}"]


def _cannot_pull(attempt: AttemptDetail) -> bool:
    return "CannotPullContainer" in f"{attempt.reason} {attempt.status_reason}"


def _format_span(start_ms: int, end_ms: int) -> str:
    seconds = max(0.0, (end_ms - start_ms) / 1000)
    return f"{seconds:.1f} s" if seconds < 60 else format_duration(int(seconds))
