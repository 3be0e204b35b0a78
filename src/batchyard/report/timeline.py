"""Draw the timeline of a run as SVG: a band for each step with the times of its attempts. Pure.

A step with few attempts shows each as a bar. A step with many shows how many ran at each moment, so
that a page about 100,000 children is as small as one about 100.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from batchyard.report import lanes, layout
from batchyard.report.amounts import format_duration, format_tick, linear_ticks
from batchyard.report.figures import AttemptStats, Ending, StepFigures
from batchyard.report.layout import Layout
from batchyard.report.markup import Markup, join, px, tag
from batchyard.units import pluralize

#: rows of bars in one band
MAX_LANES = 64
#: number of colours, which the steps use in turn
COLOURS = 8

_TOP = 26
_BAND_GAP = 13
_MIN_BAND_PX = 13
_AREA_PX = 56
_MARKS_PX = 9
_COLUMN_PX = 1.5
_MARK_PX = 2
_MIN_BAR_PX = 1.2
#: (largest number of lanes, height of a lane)
_LANE_PX = ((4, 13), (8, 10), (16, 7), (32, 5), (MAX_LANES, 3))

_ENDING_TEXTS = {
    Ending.SUCCEEDED: "",
    Ending.FAILED: ", failed",
    Ending.RETRIED: ", failed and retried",
}


@dataclass(frozen=True, slots=True)
class Scale:
    """The time axis: from a time to its x coordinate."""

    begin_ms: int
    end_ms: int
    layout: Layout

    @property
    def left_px(self) -> float:
        return self.layout.left

    @property
    def width(self) -> float:
        return self.layout.axis_width

    def x(self, at_ms: float) -> float:
        share = (at_ms - self.begin_ms) / max(1, self.end_ms - self.begin_ms)
        return self.left_px + self.width * min(1.0, max(0.0, share))


@dataclass(frozen=True, slots=True)
class Band:
    """The drawing of one step."""

    drawing: Markup
    height: float


def draw_timeline(
    steps: Sequence[StepFigures], begin_ms: int, end_ms: int, *, is_open: bool = False
) -> Markup:
    """Return the timeline with its legend. If the run ``is_open``, a line marks the last time."""
    wide = layout.wide(step.name for step in steps)
    charts = [
        _draw_chart(steps, Scale(begin_ms, end_ms, one_layout), is_open)
        for one_layout in (wide, layout.narrow())
    ]
    legend = _draw_legend(steps, steps_with_bars(steps, wide.max_bars), is_open)
    return join((tag("div", charts, class_="scroll"), legend))


def _draw_chart(steps: Sequence[StepFigures], scale: Scale, is_open: bool) -> Markup:
    bar_steps = steps_with_bars(steps, scale.layout.max_bars)
    top = float(_TOP)
    bands = []
    for number, step in enumerate(steps):
        top += scale.layout.name_line
        draw = _draw_bars if number in bar_steps else _draw_area
        band = draw(step, scale, top)
        labels = _draw_labels(step, scale, top)
        bands.append(tag("g", labels, band.drawing, class_=f"c{number % COLOURS}"))
        top += band.height + _BAND_GAP
    height = top - _BAND_GAP / 2
    return tag(
        "svg",
        tag("title", "Timeline of the children"),
        tag("desc", _describe(steps)),
        _draw_axis(scale, height, is_open),
        bands,
        viewBox=f"0 0 {px(scale.layout.width)} {px(height)}",
        role="img",
        class_=scale.layout.css_class,
    )


def steps_with_bars(steps: Sequence[StepFigures], max_bars: int) -> set[int]:
    """Return the numbers of the steps that are drawn as bars: the smallest, up to ``max_bars``.

    The steps with the most attempts are drawn as areas.
    """
    numbers, bars_left = set(), max_bars
    for number, step in sorted(enumerate(steps), key=lambda pair: pair[1].stats.count):
        if step.stats.count <= bars_left and step.peak <= MAX_LANES:
            bars_left -= step.stats.count
            numbers.add(number)
    return numbers


def _draw_bars(step: StepFigures, scale: Scale, top: float) -> Band:
    stats, peak = step.stats, step.peak
    lane_px = next(height for max_lanes, height in _LANE_PX if peak <= max_lanes)
    gap = 2 if lane_px > 6 else 1
    bars = []
    for i, lane in enumerate(lanes.pack(stats.starts_ms, stats.ends_ms)):
        start, end = scale.x(stats.starts_ms[i]), scale.x(stats.ends_ms[i])
        bars.append(
            tag(
                "rect",
                tag("title", _attempt_title(step.name, stats, i)),
                x=start,
                y=top + lane * (lane_px + gap),
                width=max(_MIN_BAR_PX, end - start - 0.4),
                height=lane_px,
                class_="failed" if stats.endings[i] != Ending.SUCCEEDED else None,
            )
        )
    height = max(_MIN_BAND_PX, max(1, peak) * (lane_px + gap) - gap)
    marks = _draw_failure_marks(stats, scale, top + height + 2)
    return Band(
        tag("g", bars, marks, class_="bars small" if scale.layout.name_line else "bars"),
        height + (_MARKS_PX if marks else 0),
    )


def _draw_area(step: StepFigures, scale: Scale, top: float) -> Band:
    stats, peak = step.stats, step.peak
    columns = int(scale.width / _COLUMN_PX)
    means = lanes.mean_concurrency(
        stats.starts_ms, stats.ends_ms, scale.begin_ms, scale.end_ms, columns
    )
    floor, unit = top + _AREA_PX, _AREA_PX / max(peak, 1)
    path, previous_y = [f"M{px(scale.left_px)} {px(floor)}"], px(floor)
    for number, mean in enumerate(means):
        y = px(floor - min(mean, peak) * unit)
        if y != previous_y:
            path.append(f"H{px(scale.left_px + number * scale.width / columns)}V{y}")
            previous_y = y
    path.append(f"H{px(scale.left_px + scale.width)}V{px(floor)}Z")
    title = f"{step.name}: {pluralize(stats.count, 'attempt')}, at most {peak:,} at once"
    shape = tag("path", tag("title", title), d="".join(path), class_="area")
    marks = _draw_failure_marks(stats, scale, floor + 2)
    return Band(join((shape, marks)), _AREA_PX + (_MARKS_PX if marks else 0))


def _draw_failure_marks(stats: AttemptStats, scale: Scale, top: float) -> Markup:
    """Return a row of marks at the failed attempts, for bars that are too short, and for areas."""
    counts: Counter[tuple[int, int]] = Counter()
    for end, ending in zip(stats.ends_ms, stats.endings, strict=True):
        if ending != Ending.SUCCEEDED:
            counts[round(scale.x(end) / _MARK_PX), ending] += 1
    marks = []
    # Final failures last, so that they are drawn on top.
    for (column, ending), count in sorted(counts.items(), key=lambda n: (-n[0][1], n[0][0])):
        is_final = ending == Ending.FAILED
        title = f"{pluralize(count, 'attempt')} failed" + ("" if is_final else ", retried")
        shape = f"M{px(column * _MARK_PX)} {px(top)}l-3 6h6z"
        class_ = "mark" if is_final else "mark again"
        marks.append(tag("path", tag("title", title), d=shape, class_=class_))
    return join(marks)


def _draw_labels(step: StepFigures, scale: Scale, top: float) -> Markup:
    x, y, css_class = scale.layout.name_position(top + 10, top)
    name = tag("text", step.name, x=x, y=y, class_=css_class)
    if not step.peak:
        state = step.status.state
        text = "did not start" if state.is_terminal else state.value.lower()
        return join((name, tag("text", text, x=scale.left_px + 4, y=top + 10, class_="note")))
    if step.peak == 1:
        return name
    y = scale.layout.note_y(top + 10, top)
    peak = tag("text", f"{step.peak:,} at once", x=scale.layout.width, y=y, class_="peak")
    return join((name, peak))


def _draw_axis(scale: Scale, height: float, is_open: bool) -> Markup:
    span_ms = scale.end_ms - scale.begin_ms
    shapes = []
    for seconds in linear_ticks(span_ms / 1000, scale.layout.max_ticks):
        x = scale.x(scale.begin_ms + seconds * 1000)
        shapes.append(tag("line", x1=x, x2=x, y1=_TOP - 8, y2=height, class_="grid"))
        shapes.append(tag("text", format_tick(seconds), x=x, y=_TOP - 13, class_="tick"))
    if is_open:
        x = scale.x(scale.end_ms)
        shapes.append(tag("line", x1=x, x2=x, y1=_TOP - 8, y2=height, class_="now"))
    return tag("g", shapes, class_="axis")


def _draw_legend(steps: Sequence[StepFigures], bar_steps: set[int], is_open: bool) -> Markup:
    """Return the meaning of each kind of mark in the chart."""
    bars: Counter[int] = Counter()
    areas: Counter[int] = Counter()
    for number, step in enumerate(steps):
        (bars if number in bar_steps else areas).update(step.stats.endings)
    triangle = "M9 2l-4 8h8z"
    box = {"x": 0, "y": 1, "width": 18, "height": 9}
    area = tag("path", d="M0 10V7H5V2H9V4H13V8H18V10Z", class_="area c6")
    line = tag("line", x1=9, x2=9, y1=-1, y2=12, class_="now")
    has_failed_bar = bool(bars[Ending.FAILED] or bars[Ending.RETRIED])
    has_failed = bool(bars[Ending.FAILED] or areas[Ending.FAILED])
    has_retried = bool(bars[Ending.RETRIED] or areas[Ending.RETRIED])
    entries = [
        (bool(bars), "one attempt", tag("rect", class_="dot c6", **box)),
        (bool(areas), "how many attempts ran at each moment", area),
        (has_failed_bar, "an attempt that failed", tag("rect", class_="failed", **box)),
        (has_failed, "a child failed for good", tag("path", d=triangle, class_="mark")),
        (has_retried, "failed and retried", tag("path", d=triangle, class_="mark again")),
        (is_open, "end of the recorded time; running attempts are not drawn", line),
    ]
    items = [
        tag("li", tag("svg", sign, width=18, height=11, aria_hidden="true"), text)
        for is_used, text, sign in entries
        if is_used
    ]
    return tag("ul", items, class_="legend")


def _attempt_title(step: str, stats: AttemptStats, i: int) -> str:
    number = f", attempt {stats.numbers[i]}" if stats.numbers[i] > 1 else ""
    duration = format_duration((stats.ends_ms[i] - stats.starts_ms[i]) / 1000)
    ending = _ENDING_TEXTS[Ending(stats.endings[i])]
    return f"{step}:{stats.indices[i]}{number}: {duration}{ending}"


def _describe(steps: Sequence[StepFigures]) -> str:
    """Return the chart in words, for screen readers; the table of steps has the numbers."""
    parts = []
    for step in steps:
        failed = step.stats.count - step.stats.endings.count(Ending.SUCCEEDED)
        failed_text = f", {failed:,} of them failed" if failed else ""
        parts.append(f"{step.name}: {pluralize(step.stats.count, 'attempt')}{failed_text}")
    return "When the attempts of each step ran. " + "; ".join(parts) + "."
