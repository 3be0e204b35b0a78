"""Draw the failures and the retries of a run as HTML. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from batchyard.report.amounts import format_count, format_duration, format_kib
from batchyard.report.figures import StepFigures
from batchyard.report.markup import Markup, join, tag
from batchyard.report.tables import plain_table
from batchyard.status import Failure
from batchyard.units import pluralize

#: failed children that are shown with the end of their output
MAX_FAILURES = 20
MAX_REASONS = 20
#: characters of a log line or command
MAX_LINE_LENGTH = 2000
MAX_COMMANDS = 3


def failures_section(
    run: str,
    steps: Sequence[StepFigures],
    failures: Sequence[Failure],
    commands: Mapping[tuple[str, int], Sequence[str]],
) -> Markup:
    """Return the section about failed children, or nothing if no child failed.

    ``commands``: (step, index) -> the commands of the child, if they are known.
    """
    if not sum(step.status.failed for step in steps):
        return Markup()
    failed_count = sum(step.stats.failures.total() for step in steps)
    failed_children = {(failure.attempt.step, failure.attempt.index) for failure in failures}
    hidden_count = failed_count - len(failed_children)
    heading = footer = None
    if hidden_count > 0:
        text = f"The first {len(failed_children)}, with the end of their output:"
        heading = tag("p", text, class_="note above")
        text = f"{pluralize(hidden_count, 'more child', 'more children')} failed; all output: "
        footer = tag("p", text, tag("code", f"batchyard logs {run} --failed"))
    return tag(
        "section",
        tag("h2", "Failures", id="failures"),
        _reasons_table(steps) if failed_count > 1 else None,
        heading,
        _articles(failures, commands),
        footer,
        _never_started(steps),
    )


def retries_section(steps: Sequence[StepFigures]) -> Markup:
    """Return the section about retried attempts, or nothing if there are none."""
    rows = []
    for step in steps:
        stats = step.stats
        for reason, attempts in stats.retries.most_common(MAX_REASONS):
            children = stats.retried_children[reason]
            counts = (attempts, len(children), len(children & stats.recovered))
            rows.append((step.name, _truncate(reason), *map(format_count, counts)))
    if not rows:
        return Markup()
    head = ("Step", "Reason", "Retried attempts", "Children", "Succeeded in the end")
    table = plain_table(head, rows, text_columns=2)
    return tag("section", tag("h2", "Retries", id="retries"), table)


def _reasons_table(steps: Sequence[StepFigures]) -> Markup:
    rows = [(step.name, reason, n) for step in steps for reason, n in step.stats.failures.items()]
    rows.sort(key=lambda row: -row[2])
    cells = [(name, _truncate(reason), format_count(n)) for name, reason, n in rows[:MAX_REASONS]]
    remaining = sum(n for _, _, n in rows[MAX_REASONS:])
    if remaining:
        cells.append(("", "other reasons", format_count(remaining)))
    return plain_table(("Step", "Reason", "Children"), cells, text_columns=2)


def _articles(
    failures: Sequence[Failure], commands: Mapping[tuple[str, int], Sequence[str]]
) -> list[Markup]:
    articles = []
    previous: tuple[str, Sequence[str]] | None = None
    for failure in failures:
        step = failure.attempt.step
        child_commands = commands.get((step, failure.attempt.index), ())
        # The children of a step often run the same command, which is then shown once.
        is_same = previous == (step, child_commands)
        if failure.command is not None:
            articles.append(_article(failure, (failure.text,) if failure.text else ()))
        else:
            articles.append(_article(failure, () if is_same else child_commands))
        previous = (step, child_commands)
    return articles


def _article(failure: Failure, commands: Sequence[str]) -> Markup:
    output = "\n".join(map(_truncate, failure.log_tail))
    has_output = bool(output.strip())
    command_lines = [f"$ {_truncate(command)}" for command in commands[:MAX_COMMANDS]]
    if len(commands) > MAX_COMMANDS:
        command_lines.append(f"... and {pluralize(len(commands) - MAX_COMMANDS, 'more command')}")
    attempt = failure.attempt
    name = f"{attempt.step}:{attempt.index}"
    if failure.command is not None:
        name += f", command {failure.command.number}"
    header = tag(
        "header",
        tag("h3", name),
        tag("p", _truncate(failure.reason), class_="bad"),
        tag("p", _numbers(failure, has_output), class_="numbers"),
    )
    return tag(
        "article",
        header,
        tag("pre", "\n".join(command_lines), class_="command") if command_lines else None,
        tag("pre", output) if has_output else None,
    )


def _numbers(failure: Failure, has_output: bool) -> str:
    """Return attempt, exit code, time and memory of a failed child or command, as one line."""
    usage = failure.command or failure.attempt
    parts = []
    if failure.attempt.attempt > 1:
        parts.append(f"attempt {failure.attempt.attempt}")
    exit_code = f"exit code {failure.exit_code}"
    if failure.exit_code is not None and not failure.reason.startswith(exit_code):
        parts.append(exit_code)
    parts.append(format_duration(usage.duration_s or 0.0))
    parts.append(f"{format_duration(usage.cpu_s)} CPU")
    if usage.peak_memory_kib:
        parts.append(format_kib(usage.peak_memory_kib))
    if not has_output:
        parts.append("no output")
    return " \N{MIDDLE DOT} ".join(parts)


def _never_started(steps: Sequence[StepFigures]) -> Markup:
    lines = []
    for step in steps:
        for reason, count in step.never_started.most_common(MAX_REASONS):
            children = pluralize(count, "child", "children")
            lines.append(tag("li", f"{step.name}: {children}: {_truncate(reason)}"))
    if not lines:
        return Markup()
    return join((tag("h3", "Never started"), tag("ul", lines, class_="plain")))


def _truncate(line: str) -> str:
    hidden_count = len(line) - MAX_LINE_LENGTH
    if hidden_count <= 0:
        return line
    return f"{line[:MAX_LINE_LENGTH]}... ({format_count(hidden_count)} more characters)"
