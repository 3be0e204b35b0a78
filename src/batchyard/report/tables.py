"""The table of steps. Pure: figures in, HTML out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchyard.batch.jobs import JobState
from batchyard.report.amounts import count, counted, duration, memory, share
from batchyard.report.figures import StepFigures
from batchyard.report.markup import Content, Markup, tag
from batchyard.report.timeline import COLOURS

_TONES = {
    JobState.SUCCEEDED: "good",
    JobState.FAILED: "bad",
    JobState.RUNNING: "busy",
    JobState.STARTING: "busy",
}


@dataclass(frozen=True, slots=True)
class Totals:
    """Of the run as a whole, where that is not a sum."""

    wall_s: float
    #: vCPUs in use, on average, out of those that the run could have; None where that cannot be said
    efficiency: float | None


def steps_table(steps: Sequence[StepFigures], totals: Totals, *, is_over: bool) -> Markup:
    """``is_over``: nothing runs or waits any more, and those columns are left out."""
    head = tag("thead", _head(is_over))
    rows = [_row(number, step, is_over) for number, step in enumerate(steps)]
    foot = tag("tfoot", _foot(steps, totals, is_over)) if len(steps) > 1 else None
    return tag("div", tag("table", head, tag("tbody", rows), foot), class_="scroll")


def plain_table(head: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> Markup:
    """The first ``texts`` columns are words, the rest numbers."""
    names = [
        tag("th", name, scope="col", class_="left" if i < texts else None)
        for i, name in enumerate(head)
    ]
    lines = []
    for row in rows:
        first = tag("th", row[0], scope="row", class_="left")
        rest = [
            tag("td", cell, class_="left wrap" if i < texts else None)
            for i, cell in enumerate(row[1:], 1)
        ]
        lines.append(tag("tr", first, rest))
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
    cells = [count(status.size), count(status.succeeded)]
    waiting = [] if is_over else [count(status.running), count(status.waiting)]
    figures = [
        count(status.attempts),
        duration(step.wall_s),
        duration(step.median_s),
        duration(step.p95_s),
        duration(step.max_s),
        duration(step.tally.cpu_s) if step.tally.count else duration(None),
        memory(step.tally.peak_kib),
        share(step.efficiency),
    ]
    failed = tag("td", count(status.failed), class_="bad" if status.failed else None)
    return tag(
        "tr",
        tag("th", swatch, status.name, scope="row", class_="left"),
        state,
        _cells(cells),
        failed,
        _cells(waiting + figures),
    )


def _foot(steps: Sequence[StepFigures], totals: Totals, is_over: bool) -> Markup:
    statuses = [step.status for step in steps]
    waiting = (
        [] if is_over else [sum(s.running for s in statuses), sum(s.waiting for s in statuses)]
    )
    sums = [
        sum(s.size for s in statuses),
        sum(s.succeeded for s in statuses),
        sum(s.failed for s in statuses),
    ]
    numbers = [*sums, *waiting, sum(s.attempts for s in statuses)]
    figures = [
        duration(totals.wall_s),
        *("", "", ""),
        duration(sum(step.tally.cpu_s for step in steps)),
        memory(max(step.tally.peak_kib for step in steps)),
        share(totals.efficiency),
    ]
    title = tag("th", counted(len(steps), "step"), scope="row", class_="left")
    return tag("tr", title, tag("td"), _cells([*map(count, numbers), *figures]))


def _cells(texts: Sequence[str]) -> list[Markup]:
    return [tag("td", text) for text in texts]
