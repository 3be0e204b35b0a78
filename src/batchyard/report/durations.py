"""Draw the durations of the children as SVG: a row for each step on one logarithmic axis. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from batchyard.report import layout
from batchyard.report.amounts import format_duration, format_tick, log_ticks
from batchyard.report.figures import StepFigures
from batchyard.report.layout import Layout
from batchyard.report.markup import Markup, join, px, tag
from batchyard.report.timeline import COLOURS
from batchyard.units import pluralize

#: A step with fewer children has a dot for each, one with more has a histogram.
MIN_FOR_COLUMNS = 40
_COLUMNS = 90
_TOP = 26
_DOTS_PX = 20
_COLUMNS_PX = 40
_GAP = 12
#: resolution of the clock
_MIN_DURATION_S = 0.001


@dataclass(frozen=True, slots=True)
class Scale:
    """The logarithmic axis: from a duration to its x coordinate."""

    low_s: float
    high_s: float
    layout: Layout

    @property
    def left_px(self) -> float:
        return self.layout.left

    def share(self, seconds: float) -> float:
        """Return the position on the axis: 0 at its left end, 1 at its right end."""
        seconds = min(max(seconds, self.low_s), self.high_s)
        return math.log(seconds / self.low_s) / math.log(self.high_s / self.low_s)

    def x(self, seconds: float) -> float:
        return self.left_px + self.share(seconds) * self.width

    @property
    def width(self) -> float:
        return self.layout.axis_width


def draw_durations(steps: Sequence[StepFigures]) -> Markup:
    """Return the chart of the steps with ended attempts, or nothing if there is no such step.

    It is drawn twice, for wide and for narrow screens.
    """
    colours = {step.name: number % COLOURS for number, step in enumerate(steps)}
    steps = [step for step in steps if step.max_s is not None]
    if not steps:
        return Markup()
    screens = (layout.wide(step.name for step in steps), layout.narrow())
    return join([_draw_chart(steps, colours, _make_scale(steps, screen)) for screen in screens])


def _draw_chart(steps: Sequence[StepFigures], colours: dict[str, int], scale: Scale) -> Markup:
    top = float(_TOP)
    rows = []
    for step in steps:
        top += scale.layout.name_line
        has_dots = len(step.stats.succeeded_ms) + len(step.stats.failed_ms) < MIN_FOR_COLUMNS
        height = _DOTS_PX if has_dots else _COLUMNS_PX
        if has_dots:
            shapes = _draw_dots(step, scale, top)
        else:
            shapes = _draw_histogram(step, scale, top + height)
        frame = _draw_frame(step, scale, top, height)
        median = _draw_median(step, scale, top, height)
        rows.append(tag("g", frame, shapes, median, class_=f"c{colours[step.name]}"))
        top += height + _GAP
    description = (
        "How long each child's last attempt took, by step; the table of steps has the numbers."
    )
    return tag(
        "svg",
        tag("title", "Durations of the children"),
        tag("desc", description),
        _draw_axis(scale, top),
        rows,
        viewBox=f"0 0 {px(scale.layout.width)} {px(top)}",
        role="img",
        class_=scale.layout.css_class,
    )


def _make_scale(steps: Sequence[StepFigures], chart_layout: Layout) -> Scale:
    """Return the axis from the shortest to the longest duration, at least a factor of three.

    On a narrower axis small differences would look large.
    """
    all_ms = [ms for step in steps for ms in (step.stats.succeeded_ms, step.stats.failed_ms)]
    shortest_s = min(min(ms, default=math.inf) for ms in all_ms) / 1000
    longest_s = max(step.max_s or 0 for step in steps)
    low_s = max(_MIN_DURATION_S, shortest_s) / 1.05
    high_s = max(_MIN_DURATION_S, longest_s) * 1.05
    factor = max(1.0, math.sqrt(3 / (high_s / low_s)))
    low_s = max(_MIN_DURATION_S / 1.05, low_s / factor)
    return Scale(low_s, high_s * factor, chart_layout)


def _draw_dots(step: StepFigures, scale: Scale, top: float) -> Markup:
    middle = top + _DOTS_PX / 2
    succeeded = [
        tag("circle", cx=scale.x(ms / 1000), cy=middle, r=4, class_="dot")
        for ms in step.stats.succeeded_ms
    ]
    failed = []
    for ms in step.stats.failed_ms:
        diamond = f"M{px(scale.x(ms / 1000))} {px(middle - 5)}l5 5l-5 5l-5 -5z"
        failed.append(tag("path", d=diamond, class_="failed"))
    return join((succeeded, failed))


def _draw_histogram(step: StepFigures, scale: Scale, floor: float) -> Markup:
    """Return columns of counts, with the failed children above those that succeeded."""
    succeeded = _count_by_column(step.stats.succeeded_ms, scale)
    failed = _count_by_column(step.stats.failed_ms, scale)
    max_count = max(a + b for a, b in zip(succeeded, failed, strict=True))
    shapes, width = [], scale.width / _COLUMNS
    for column, counts in enumerate(zip(succeeded, failed, strict=True)):
        x, y = scale.left_px + column * width + 0.5, floor
        for count, class_ in zip(counts, ("dot", "failed"), strict=True):
            if not count:
                continue
            # Also a single child among thousands is visible.
            height = max(1.5, count / max_count * (_COLUMNS_PX - 2))
            y -= height
            text = pluralize(count, "child", "children") + (" failed" * (class_ == "failed"))
            title = tag("title", f"{text} after {_column_range(scale, column)}")
            shapes.append(
                tag("rect", title, x=x, y=y, width=width - 1, height=height, class_=class_)
            )
    return join(shapes)


def _count_by_column(durations_ms: Sequence[int], scale: Scale) -> list[int]:
    counts = [0] * _COLUMNS
    # Few of 100,000 durations differ, and a logarithm is slow: each column is computed once.
    column_of: dict[int, int] = {}
    for ms in durations_ms:
        column = column_of.get(ms)
        if column is None:
            column = column_of[ms] = min(_COLUMNS - 1, int(scale.share(ms / 1000) * _COLUMNS))
        counts[column] += 1
    return counts


def _column_range(scale: Scale, column: int) -> str:
    ratio = scale.high_s / scale.low_s
    low = format_duration(scale.low_s * ratio ** (column / _COLUMNS))
    high = format_duration(scale.low_s * ratio ** ((column + 1) / _COLUMNS))
    return low if low == high else f"{low} to {high}"


def _draw_median(step: StepFigures, scale: Scale, top: float, height: float) -> Markup:
    if step.median_s is None:
        return Markup()
    x = scale.x(step.median_s)
    title = tag("title", f"{step.name}: median {format_duration(step.median_s)}")
    return tag("line", title, x1=x, x2=x, y1=top, y2=top + height, class_="median")


def _draw_frame(step: StepFigures, scale: Scale, top: float, height: float) -> Markup:
    y, floor = top + height / 2 + 4, top + height
    right = scale.left_px + scale.width
    note_x, note_y = scale.layout.width, scale.layout.note_y(y, top)
    return join(
        (
            tag("line", x1=scale.left_px, x2=right, y1=floor, y2=floor, class_="base"),
            scale.layout.draw_name(step.name, y, top),
            tag("text", format_duration(step.median_s), x=note_x, y=note_y, class_="peak"),
        )
    )


def _draw_axis(scale: Scale, height: float) -> Markup:
    shapes = []
    if not scale.layout.name_line:
        x = scale.layout.width
        shapes = [tag("text", "median", x=x, y=_TOP - 13, class_="peak small")]
    ticks = [(seconds, scale.x(seconds)) for seconds in log_ticks(scale.low_s, scale.high_s)]
    for seconds, x in scale.layout.drop_crowded(ticks) if scale.layout.name_line else ticks:
        shapes.append(tag("line", x1=x, x2=x, y1=_TOP - 8, y2=height - _GAP + 4, class_="grid"))
        shapes.append(tag("text", format_tick(seconds), x=x, y=_TOP - 13, class_="tick"))
    return tag("g", shapes, class_="axis")
