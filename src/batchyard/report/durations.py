"""How long the children took: a row for each step on one logarithmic axis. Pure: figures in, SVG out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from batchyard.report.amounts import counted, duration, log_ticks, tick_label
from batchyard.report.figures import StepFigures
from batchyard.report.markup import Markup, join, px, tag
from batchyard.report.timeline import COLOURS, WIDTH, left_margin

#: with fewer children each is a dot, with more they are counted in columns
MIN_FOR_COLUMNS = 40
_COLUMNS = 90
_RIGHT = 84
_TOP = 26
_DOTS_PX = 20
_COLUMNS_PX = 40
_GAP = 12
#: the clock's own step
_SHORTEST_S = 0.001


@dataclass(frozen=True, slots=True)
class Scale:
    low_s: float
    high_s: float
    left: float

    def part(self, seconds: float) -> float:
        """0 at the left end, 1 at the right one."""
        seconds = min(max(seconds, self.low_s), self.high_s)
        return math.log(seconds / self.low_s) / math.log(self.high_s / self.low_s)

    def x(self, seconds: float) -> float:
        return self.left + self.part(seconds) * self.width

    @property
    def width(self) -> float:
        return WIDTH - self.left - _RIGHT


def durations(steps: Sequence[StepFigures]) -> Markup:
    """The steps that have any; nothing where none has."""
    colours = {step.name: number % COLOURS for number, step in enumerate(steps)}
    drawn_steps = [step for step in steps if step.max_s is not None]
    if not drawn_steps:
        return Markup()
    scale = _scale(drawn_steps)
    top = _TOP
    rows = []
    for step in drawn_steps:
        is_few = len(step.tally.succeeded_ms) + len(step.tally.failed_ms) < MIN_FOR_COLUMNS
        tall = _DOTS_PX if is_few else _COLUMNS_PX
        shapes = _dots(step, scale, top) if is_few else _columns(step, scale, top + tall)
        content = (_frame(step, scale, top, tall), shapes, _median(step, scale, top, tall))
        rows.append(tag("g", content, class_=f"c{colours[step.name]}"))
        top += tall + _GAP
    return tag(
        "svg",
        tag("title", "Durations of the children"),
        tag(
            "desc",
            "How long each child's last attempt took, by step; the table of steps has the numbers.",
        ),
        _axis(scale, top),
        rows,
        viewBox=f"0 0 {WIDTH} {top}",
        role="img",
        class_="chart",
    )


def _scale(steps: Sequence[StepFigures]) -> Scale:
    """From the shortest to the longest, and never less than a factor of three: else noise would look like news."""
    shortest = (
        min(min(milliseconds, default=math.inf) for step in steps for milliseconds in _both(step))
        / 1000
    )
    longest = max(step.max_s or 0 for step in steps)
    low, high = max(_SHORTEST_S, shortest) / 1.05, max(_SHORTEST_S, longest) * 1.05
    widen = max(1.0, math.sqrt(3 / (high / low)))
    return Scale(
        max(_SHORTEST_S / 1.05, low / widen), high * widen, left_margin(step.name for step in steps)
    )


def _both(step: StepFigures) -> tuple[Sequence[int], Sequence[int]]:
    return step.tally.succeeded_ms, step.tally.failed_ms


def _dots(step: StepFigures, scale: Scale, top: float) -> Markup:
    middle = top + _DOTS_PX / 2
    good = [
        tag("circle", cx=scale.x(ms / 1000), cy=middle, r=4, class_="dot")
        for ms in step.tally.succeeded_ms
    ]
    bad = [
        tag(
            "path", d=f"M{px(scale.x(ms / 1000))} {px(middle - 5)}l5 5l-5 5l-5 -5z", class_="failed"
        )
        for ms in step.tally.failed_ms
    ]
    return join((good, bad))


def _columns(step: StepFigures, scale: Scale, floor: float) -> Markup:
    """Counts, those that failed stacked on those that succeeded."""
    good, bad = (_counted(milliseconds, scale) for milliseconds in _both(step))
    tallest = max(a + b for a, b in zip(good, bad, strict=True))
    drawn, width = [], scale.width / _COLUMNS
    for column, (succeeded, failed) in enumerate(zip(good, bad, strict=True)):
        x, y = scale.left + column * width, floor
        for count, name in ((succeeded, "dot"), (failed, "failed")):
            if count:
                # However few there are, they are to be seen.
                tall = max(1.5, count / tallest * (_COLUMNS_PX - 2))
                y -= tall
                words = (
                    f"{counted(count, 'child', 'children')}{' failed' if name == 'failed' else ''}"
                )
                title = tag("title", f"{words} after {_range(scale, column)}")
                drawn.append(
                    tag("rect", title, x=x + 0.5, y=y, width=width - 1, height=tall, class_=name)
                )
    return join(drawn)


def _counted(milliseconds: Sequence[int], scale: Scale) -> list[int]:
    counts = [0] * _COLUMNS
    # Of 100,000 durations only few differ: the logarithm is taken once for each that does.
    column_of: dict[int, int] = {}
    for ms in milliseconds:
        column = column_of.get(ms)
        if column is None:
            column = column_of[ms] = min(_COLUMNS - 1, int(scale.part(ms / 1000) * _COLUMNS))
        counts[column] += 1
    return counts


def _range(scale: Scale, column: int) -> str:
    ratio = scale.high_s / scale.low_s
    low, high = (
        duration(scale.low_s * ratio ** (edge / _COLUMNS)) for edge in (column, column + 1)
    )
    return low if low == high else f"{low} to {high}"


def _median(step: StepFigures, scale: Scale, top: float, tall: float) -> Markup:
    if step.median_s is None:
        return Markup()
    x = scale.x(step.median_s)
    title = tag("title", f"{step.name}: median {duration(step.median_s)}")
    return tag("line", title, x1=x, x2=x, y1=top, y2=top + tall, class_="median")


def _frame(step: StepFigures, scale: Scale, top: float, tall: float) -> Markup:
    y, floor = top + tall / 2 + 4, top + tall
    return join(
        (
            tag(
                "line",
                x1=scale.left,
                x2=scale.left + scale.width,
                y1=floor,
                y2=floor,
                class_="base",
            ),
            tag("text", step.name, x=scale.left - 12, y=y, class_="name"),
            tag("text", duration(step.median_s), x=WIDTH, y=y, class_="peak"),
        )
    )


def _axis(scale: Scale, height: float) -> Markup:
    drawn = [tag("text", "median", x=WIDTH, y=_TOP - 13, class_="peak small")]
    for seconds in log_ticks(scale.low_s, scale.high_s):
        x = scale.x(seconds)
        drawn.append(tag("line", x1=x, x2=x, y1=_TOP - 8, y2=height - _GAP + 4, class_="grid"))
        drawn.append(tag("text", tick_label(seconds), x=x, y=_TOP - 13, class_="tick"))
    return tag("g", drawn, class_="axis")
