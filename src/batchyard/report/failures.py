"""What failed, and what was tried again. Pure: values in, HTML out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from batchyard.report.amounts import count, counted, duration, memory
from batchyard.report.figures import StepFigures
from batchyard.report.markup import Markup, join, tag
from batchyard.report.tables import plain_table
from batchyard.status import Failure, explain_failure

#: failed children shown with the end of their output
MAX_SHOWN = 20
MAX_REASONS = 20
#: of one log line or command: a page is no place for the rest of it
MAX_LINE = 2000
MAX_COMMANDS = 3


def failures(
    run: str,
    steps: Sequence[StepFigures],
    shown: Sequence[Failure],
    commands: Mapping[tuple[str, int], Sequence[str]],
) -> Markup:
    """``commands``: (step, index) -> the commands of the child, as far as they are known."""
    if not sum(step.status.failed for step in steps):
        return Markup()
    ran = sum(step.tally.failures.total() for step in steps)
    more = ran - len(shown)
    first = rest = None
    if more > 0:
        first = tag(
            "p", f"The first {len(shown)}, with the end of their output:", class_="note above"
        )
        said = f"{counted(more, 'more child', 'more children')} failed; all their output: "
        rest = tag("p", said, tag("code", f"batchyard logs {run} --failed"))
    return tag(
        "section",
        tag("h2", "Failures", id="failures"),
        _by_reason(steps) if ran > 1 else None,
        first,
        _articles(shown, commands),
        rest,
        _never_started(steps),
    )


def retries(steps: Sequence[StepFigures]) -> Markup:
    rows = []
    for step in steps:
        for reason, attempts in step.tally.retries.most_common(MAX_REASONS):
            children = step.tally.retried[reason]
            recovered = len(children & step.tally.recovered)
            rows.append(
                (step.name, _cut(reason), count(attempts), count(len(children)), count(recovered))
            )
    if not rows:
        return Markup()
    head = ("Step", "Reason", "Attempts tried again", "Children", "Succeeded in the end")
    return tag("section", tag("h2", "Retries", id="retries"), plain_table(head, rows, texts=2))


def _by_reason(steps: Sequence[StepFigures]) -> Markup:
    rows = [(step.name, reason, n) for step in steps for reason, n in step.tally.failures.items()]
    rows.sort(key=lambda row: -row[2])
    cells = [(name, _cut(reason), count(n)) for name, reason, n in rows[:MAX_REASONS]]
    left = sum(n for _, _, n in rows[MAX_REASONS:])
    if left:
        cells.append(("", "other reasons", count(left)))
    return plain_table(("Step", "Reason", "Children"), cells, texts=2)


def _articles(
    shown: Sequence[Failure], commands: Mapping[tuple[str, int], Sequence[str]]
) -> list[Markup]:
    articles = []
    before: tuple[str, Sequence[str]] | None = None
    for failure in shown:
        step = failure.attempt.step
        own = commands.get((step, failure.attempt.index), ())
        # Children of a step often all run the same command: said once.
        articles.append(_article(failure, () if before == (step, own) else own))
        before = (step, own)
    return articles


def _article(failure: Failure, commands: Sequence[str]) -> Markup:
    attempt = failure.attempt
    name = f"{attempt.step}:{attempt.index}"
    exit_code = None if attempt.exit_code is None else f"exit code {attempt.exit_code}"
    reason = explain_failure(attempt)
    output = "\n".join(map(_cut, failure.log_tail))
    numbers = [
        f"attempt {attempt.attempt}" if attempt.attempt > 1 else None,
        exit_code if exit_code and not reason.startswith(exit_code) else None,
        duration(attempt.duration_s),
        f"{duration(attempt.user_s + attempt.system_s)} CPU",
        memory(attempt.max_rss_kib) if attempt.max_rss_kib else None,
        None if output.strip() else "no output",
    ]
    listed = [f"$ {_cut(command)}" for command in commands[:MAX_COMMANDS]]
    if len(commands) > MAX_COMMANDS:
        listed.append(f"... and {counted(len(commands) - MAX_COMMANDS, 'more command')}")
    return tag(
        "article",
        tag(
            "header",
            tag("h3", name),
            tag("p", _cut(reason), class_="bad"),
            tag("p", " \N{MIDDLE DOT} ".join(filter(None, numbers)), class_="numbers"),
        ),
        tag("pre", "\n".join(listed), class_="command") if listed else None,
        tag("pre", output) if output.strip() else None,
    )


def _never_started(steps: Sequence[StepFigures]) -> Markup:
    lines = [
        tag(
            "li",
            f"{step.name}: {counted(step.never_started, 'child', 'children')}: {_cut(step.status.reason)}",
        )
        for step in steps
        if step.never_started > 0
    ]
    return (
        join((tag("h3", "Never started"), tag("ul", lines, class_="plain"))) if lines else Markup()
    )


def _cut(line: str) -> str:
    return (
        line
        if len(line) <= MAX_LINE
        else f"{line[:MAX_LINE]}... ({count(len(line) - MAX_LINE)} more characters)"
    )
