"""Plans, statuses and failures as lines of text for people. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from batchyard.batch.jobs import JobState, StatusReason
from batchyard.cli import render_use
from batchyard.cli.tables import table
from batchyard.engines.base import AttemptDetail, RunState, ServiceRequest
from batchyard.plan import Plan, PlannedJob, count_commands
from batchyard.status import (
    MAX_FAILURES,
    Failure,
    RunStatus,
    StepStatus,
    explain_excess,
    explain_moves,
)
from batchyard.units import format_duration, format_memory, pluralize, show_controls

if TYPE_CHECKING:
    from batchyard.command_lengths import Expectation
    from batchyard.planned_commands import PlannedCommand

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
    lines += render_use.use_lines(status.uses)
    sizes = {step.name: step.size for step in status.steps}
    for failure in status.failures:
        name = _failure_name(failure, sizes[failure.attempt.step])
        lines += ["", click.style(f"{name}: {show_controls(failure.reason)}", fg="red")]
        if failure.text:
            lines.append(f"  $ {_truncate(show_controls(failure.text))}")
        lines += [f"  | {_truncate(line)}" for line in failure.log_tail] or ["  | (no output)"]
    lines += _excess_lines(status)
    moves = explain_moves(status)
    lines += ["", *moves] if moves else []
    lines += ["", click.style(status.held, fg="yellow")] if status.held else []
    lines += _wait_lines(status, now_ms, flags)
    lines += _next_commands(status, flags)
    return lines


def _failure_name(failure: Failure, size: int) -> str:
    """Return the name of a failed child or command, with its attempt from the second on."""
    attempt = failure.attempt
    child = child_name(attempt.step, attempt.index, size)
    number = f" (attempt {attempt.attempt})" if attempt.attempt > 1 else ""
    if failure.command is None:
        return f"{child}{number}"
    return f"{child}{number}, command {failure.command.number}"


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
    """Return the line, cut if it is very long, with visible control characters.

    `logs` prints all of it, byte for byte.
    """
    hidden_count = len(line) - _MAX_LINE_LENGTH
    visible = show_controls(line[:_MAX_LINE_LENGTH])
    return visible if hidden_count <= 0 else f"{visible}... ({hidden_count:,} more characters)"


def plan_lines(plan: Plan, command_counts: Mapping[str, int] | None = None) -> list[str]:
    """Return a plan as a table with a row for each step.

    ``command_counts``: step -> number of its commands that would run, if not all of them.
    """
    counts = command_counts or {}
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
    rows = [_plan_row(job, counts.get(job.step)) for job in plan.jobs]
    steps = pluralize(len(plan.jobs), "step")
    children = pluralize(sum(job.size for job in plan.jobs), "child", "children")
    title = f"pipeline {plan.pipeline}: {steps}, {children}"
    return [title, "", *table(head, rows, right=frozenset(range(1, 8)))]


def expectation_lines(
    expectations: Mapping[str, Expectation], slots: Mapping[str, int]
) -> list[str]:
    """Return a line for each dynamic step: when it ends, or that nobody knows.

    ``slots``: dynamic step -> commands that run at once.
    """
    lines = [
        f"{step}: expected end unknown: no earlier run tells how long its commands take"
        for step in slots
        if step not in expectations
    ]
    lines += [
        f"{step}: expected to take {format_seconds(entry.expected_s)} with {entry.slots} at once, "
        f"and at least {format_seconds(entry.lower_bound_s)} in any order "
        f"(earlier runs tell the time of {entry.known:,} of {entry.commands:,} commands)"
        for step, entry in expectations.items()
    ]
    return ["", *lines] if lines else []


def command_lines(commands: Iterable[PlannedCommand], with_reasons: bool) -> list[str]:
    """Return a table of the commands that would run, with their whole texts."""
    head = ["command", "child", *(["why"] if with_reasons else []), ""]
    rows = [
        [
            f"{command.step}:{command.number}",
            "-" if command.index is None else str(command.index),
            *([command.reason] if with_reasons else []),
            show_controls(command.text),
        ]
        for command in commands
    ]
    return table(head, rows, right=frozenset({1}))


def request_lines(requests: Sequence[ServiceRequest]) -> list[str]:
    """Return the requests that a run would send, each as the operation and its JSON."""
    lines = []
    for request in requests:
        lines += ["", f"{request.operation} (not sent)"]
        lines += json.dumps(request.members, indent=2, ensure_ascii=False).splitlines()
    return lines


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


def _plan_row(job: PlannedJob, command_count: int | None) -> tuple[str, ...]:
    needs = ", ".join(f"{need.step} (each)" if need.each else need.step for need in job.needs)
    return (
        job.step,
        str(job.size),
        _command_counts(job, command_count),
        str(job.resources.vcpus),
        format_memory(job.resources.memory_mib),
        str(job.resources.gpus or "-"),
        str(job.retry.attempts),
        "-" if job.timeout_s is None else format_duration(job.timeout_s),
        needs or "-",
    )


def _command_counts(job: PlannedJob, command_count: int | None) -> str:
    """Return the number of commands that would run, and where all do, of each child."""
    total = count_commands(job)
    if job.is_dynamic:
        return f"{total if command_count is None else command_count} (dynamic)"
    if command_count not in (None, total):
        return str(command_count)
    counts = sorted({len(job.commands_of(child)) for child in {0, job.size // 2, job.size - 1}})
    per_child = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"
    return f"{total} ({per_child} a child)" if job.size > 1 else str(total)


def _excess_lines(status: RunStatus) -> list[str]:
    lines = [
        click.style(f"warning: {explain_excess(excess)}", fg="yellow")
        for excess in status.memory_excesses[:MAX_FAILURES]
    ]
    hidden_count = len(status.memory_excesses) - len(lines)
    if hidden_count > 0:
        lines.append(f"{pluralize(hidden_count, 'more step')} with such children: see the report")
    return ["", *lines] if lines else []


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
    return format_seconds(max(0.0, (end_ms - start_ms) / 1000))


def format_seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else format_duration(int(seconds))
