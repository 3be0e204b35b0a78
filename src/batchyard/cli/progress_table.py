"""The progress of a run as lines of text that fit a terminal. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import click

from batchyard.batch.jobs import JobState
from batchyard.cli.tables import table
from batchyard.progress import Work, count_work, measure_pace, total_work
from batchyard.quick_dataclasses import dataclass
from batchyard.status import StepStatus
from batchyard.units import pluralize

_WIDEST_BAR = 28
_NARROWEST_BAR = 8
_SHORTEST_NAME = 12
_GAP = 2
_MAX_ROWS = 30
#: The line about the run, the head of the table, the line about steps without a row, the cursor.
_LINES_BESIDE_ROWS = 4
#: The columns from left to right. The bar has no heading.
_COLUMNS = ("step", "bar", "done", "failed", "running", "rate", "left")
#: Columns that are drawn if there is room, the most important first.
_OPTIONAL = ("failed", "left", "bar", "running", "rate")
_COLOURS = {JobState.FAILED: "red", JobState.SUCCEEDED: "green"}


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the work goes on, measured from the beginning of the display."""

    #: Work that is done since the display began.
    done: int
    elapsed_s: float

    @property
    def per_s(self) -> float:
        """The rate; 0 if nothing is done yet."""
        return self.done / max(0.001, self.elapsed_s)


def overall_line(steps: Sequence[StepStatus], pace: Pace, width: int) -> str:
    """Return what is done of the run, the rate, and the remaining time at that rate.

    The parts that do not fit into ``width`` are left out, the last ones first.
    """
    work = total_work(steps)
    running = sum(step.running for step in steps)
    parts = [f"{work.failed:,} failed"] if work.failed else []
    if pace.done and work.done < work.total:
        parts.append(f"{format_clock((work.total - work.done) / pace.per_s)} left")
    if pace.done:
        parts.append(format_rate(pace.per_s))
    if running:
        parts.append(f"{running:,} running")
    line = f"{work.done:,} of {count_of(work)} done"
    if len(", ".join([line, *parts[:2]])) > width:
        line = f"{work.done:,}/{work.total:,} done"
    for part in parts:
        if len(line) + 2 + len(part) > width:
            break
        line += f", {part}"
    return line


def count_of(work: Work) -> str:
    """Return how much work there is, as a number with its noun."""
    if work.is_in_commands:
        return pluralize(work.total, "command")
    return pluralize(work.total, "child", "children")


def progress_lines(
    steps: Sequence[StepStatus], pace: Pace, now_ms: int, width: int, height: int
) -> list[str]:
    """Return the display of a running run: a line about the run, and the steps that fit.

    ``width`` and ``height``: columns and lines of the terminal.
    """
    lines = [click.style(overall_line(steps, pace, width), bold=True)]
    if len(steps) == 1:
        return [*lines, _bar(steps[0], min(2 * _WIDEST_BAR, width))]
    rows = max(1, min(_MAX_ROWS, height - _LINES_BESIDE_ROWS))
    visible = select_steps(steps, rows)
    lines += _table_lines(visible, now_ms, width)
    names = {step.name for step in visible}
    hidden = [step for step in steps if step.name not in names]
    return [*lines, *([_rest_line(hidden)[:width]] if hidden else [])]


def select_steps(steps: Sequence[StepStatus], count: int) -> list[StepStatus]:
    """Return ``count`` steps in their order: running ones first, then failed, waiting, done."""
    order = sorted(range(len(steps)), key=lambda number: (_urgency(steps[number]), number))
    return [steps[number] for number in sorted(order[:count])]


def _urgency(step: StepStatus) -> int:
    if step.running:
        return 0
    if step.failed:
        return 1
    return 3 if step.state.is_terminal else 2


def _rest_line(steps: Sequence[StepStatus]) -> str:
    """Return the number of steps that have no row, by what became of them."""
    words = ("running", "failed", "waiting", "done")
    counts = [sum(_urgency(step) == urgency for step in steps) for urgency in range(len(words))]
    parts = [f"{count:,} {word}" for count, word in zip(counts, words, strict=True) if count]
    return f"{pluralize(len(steps), 'more step')}: {', '.join(parts)}"


def _table_lines(steps: Sequence[StepStatus], now_ms: int, width: int) -> list[str]:
    longest_name = max(_SHORTEST_NAME, width * 2 // 5)
    rows = [_cells(step, now_ms, longest_name) for step in steps]
    columns, bar_width = _choose_columns(rows, width)
    for step, row in zip(steps, rows, strict=True):
        row["bar"] = _bar(step, bar_width)
    head = ["" if name == "bar" else click.style(name, dim=True) for name in columns]
    right = frozenset(i for i, name in enumerate(columns) if name not in ("step", "bar"))
    return table(head, [[row[name] for name in columns] for row in rows], right)


def _choose_columns(rows: Sequence[dict[str, str]], width: int) -> tuple[list[str], int]:
    """Return the columns that fit, from left to right, and the width of the bar."""
    widths = {
        name: max(len(name), *(len(click.unstyle(row[name])) for row in rows)) for name in _COLUMNS
    }
    widths["bar"] = _NARROWEST_BAR
    chosen = {"step", "done"}
    free = width - widths["step"] - _GAP - widths["done"]
    for name in _OPTIONAL:
        has_values = name == "bar" or any(row[name] for row in rows)
        if has_values and widths[name] + _GAP <= free:
            chosen.add(name)
            free -= widths[name] + _GAP
    bar_width = min(_WIDEST_BAR, _NARROWEST_BAR + free)
    return [name for name in _COLUMNS if name in chosen], bar_width


def _cells(step: StepStatus, now_ms: int, longest_name: int) -> dict[str, str]:
    """Return column -> text of a step's row."""
    work = count_work(step)
    rate, time_left = _rate_cells(step, work, now_ms)
    waits = not step.running and not step.state.is_terminal
    colour = _COLOURS.get(step.state, None if waits else "cyan")
    return {
        "step": click.style(_shorten(step.name, longest_name), fg=colour, dim=waits),
        "bar": "",
        "done": f"{work.done:,}/{work.total:,}",
        "failed": click.style(f"{work.failed:,}", fg="red") if work.failed else "",
        "running": f"{step.running:,}" if step.running else "",
        "rate": rate,
        "left": time_left,
    }


def _shorten(name: str, longest: int) -> str:
    """Return the name, without its middle if it is long: names often differ at their end."""
    if len(name) <= longest:
        return name
    tail_length = longest // 2
    return f"{name[: longest - 1 - tail_length]}…{name[-tail_length:]}"


def _bar(step: StepStatus, width: int) -> str:
    work = count_work(step)
    filled = width * work.done // work.total if work.total else width
    colour = "red" if step.failed else "green"
    return click.style("━" * filled, fg=colour) + click.style("─" * (width - filled), dim=True)


def _rate_cells(step: StepStatus, work: Work, now_ms: int) -> tuple[str, str]:
    """Return the rate of a step since its start, and the remaining time at that rate."""
    pace = measure_pace(step, work, now_ms)
    if pace is None:
        return "", ""
    return format_rate(pace.per_s), "" if pace.left_s is None else format_clock(pace.left_s)


def format_rate(per_s: float) -> str:
    """Return a rate: 12.5/s, 30.0/min."""
    return f"{per_s:,.1f}/s" if per_s >= 1 else f"{per_s * 60:.1f}/min"


def format_clock(seconds: float) -> str:
    """Return a remaining time: 0:16, 1:02:03, 4d 2h."""
    minutes, whole_seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 24:
        return f"{hours // 24}d {hours % 24}h"
    return f"{hours}:{minutes:02}:{whole_seconds:02}" if hours else f"{minutes}:{whole_seconds:02}"
