"""Draw the tables of a report as HTML. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchyard.batch.jobs import JobState
from batchyard.report.amounts import (
    format_count,
    format_duration,
    format_kib,
    format_share,
)
from batchyard.report.figures import StepFigures
from batchyard.report.markup import Content, Markup, tag
from batchyard.report.timeline import COLOURS
from batchyard.units import pluralize

_TONES = {
    JobState.SUCCEEDED: "good",
    JobState.FAILED: "bad",
    JobState.RUNNING: "busy",
    JobState.STARTING: "busy",
}


@dataclass(frozen=True, slots=True)
class Totals:
    """Figures of the whole run that are not sums over its steps."""

    wall_s: float
    #: mean share of the run's vCPUs that children had, 0 to 1; None if unknown
    efficiency: float | None


def steps_table(steps: Sequence[StepFigures], totals: Totals, *, is_over: bool) -> Markup:
    """Return the table of steps. If the run ``is_over``, it has no columns for waiting children."""
    head = tag("thead", _head(is_over))
    rows = [_row(number, step, is_over) for number, step in enumerate(steps)]
    foot = tag("tfoot", _foot(steps, totals, is_over)) if len(steps) > 1 else None
    return tag("div", tag("table", head, tag("tbody", rows), foot), class_="scroll")


def plain_table(head: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int) -> Markup:
    """Return a table whose first ``text_columns`` columns are text, and the others numbers."""
    names = [
        tag("th", name, scope="col", class_="left" if i < text_columns else None)
        for i, name in enumerate(head)
    ]
    lines = []
    for row in rows:
        first = tag("th", row[0], scope="row", class_="left")
        cells = [
            tag("td", cell, class_="left wrap" if i < text_columns else None)
            for i, cell in enumerate(row[1:], 1)
        ]
        lines.append(tag("tr", first, cells))
    return tag(
        "div",
        tag("table", tag("thead", tag("tr", names)), tag("tbody", lines), class_="short"),
        class_="scroll",
    )


def _head(is_over: bool) -> Content:
    def column(name: str, class_: str | None = None) -> Markup:
        return tag("th", name, scope="col", rowspan=2, class_=class_)

    waiting = () if is_over else (column("Running"), column("Waiting"))
    first = tag(
        "tr",
        (
            column("Step", "left"),
            column("State", "left"),
            column("Children"),
            column("Succeeded"),
            column("Failed"),
        ),
        waiting,
        (column("Attempts"), column("Wall time")),
        tag("th", "Duration of a child", scope="colgroup", colspan=3, class_="group"),
        (column("CPU time"), column("Peak memory"), column("Efficiency")),
    )
    return (first, tag("tr", [tag("th", name, scope="col") for name in ("Median", "p95", "Max")]))


def _row(number: int, step: StepFigures, is_over: bool) -> Markup:
    status = step.status
    swatch = tag("span", class_=f"swatch c{number % COLOURS}")
    state = tag("td", status.state.value, class_=f"left state {_TONES.get(status.state, 'dim')}")
    cells = [format_count(status.size), format_count(status.succeeded)]
    waiting = [] if is_over else [format_count(status.running), format_count(status.waiting)]
    figures = [
        format_count(status.attempts),
        format_duration(step.wall_s),
        format_duration(step.median_s),
        format_duration(step.p95_s),
        format_duration(step.max_s),
        format_duration(step.stats.cpu_s) if step.stats.count else format_duration(None),
        format_kib(step.stats.peak_kib),
        format_share(step.efficiency),
    ]
    failed = tag("td", format_count(status.failed), class_="bad" if status.failed else None)
    return tag(
        "tr",
        tag("th", swatch, status.name, scope="row", class_="left"),
        state,
        _cells(cells),
        failed,
        _cells(waiting + figures),
    )


def _foot(steps: Sequence[StepFigures], totals: Totals, is_over: bool) -> Markup:
    names = ["size", "succeeded", "failed", "running", "waiting", "attempts"]
    if is_over:
        names = ["size", "succeeded", "failed", "attempts"]
    sums = [sum(getattr(step.status, name) for step in steps) for name in names]
    figures = [
        format_duration(totals.wall_s),
        *("", "", ""),
        format_duration(sum(step.stats.cpu_s for step in steps)),
        format_kib(max(step.stats.peak_kib for step in steps)),
        format_share(totals.efficiency),
    ]
    title = tag("th", pluralize(len(steps), "step"), scope="row", class_="left")
    return tag("tr", title, tag("td"), _cells([*map(format_count, sums), *figures]))


def _cells(texts: Sequence[str]) -> list[Markup]:
    return [tag("td", text) for text in texts]
