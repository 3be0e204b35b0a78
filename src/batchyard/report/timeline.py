"""Draw the timeline of a run as SVG: a band for each step with the times of its attempts. Pure.

A step with few attempts shows each as a bar, in the row of its slot. A step with many shows how
many ran at each moment, and below that a lane for each slot, so that a page about 100,000 children
is as small as one about 100.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batchyard.report import lane_chart, lanes, layout
from batchyard.report.amounts import format_duration
from batchyard.report.axis import AXIS_PX, Scale, draw_axis
from batchyard.report.figures import AttemptStats, Ending, StepFigures
from batchyard.report.host_lanes import Lane, find_slots
from batchyard.report.markup import Markup, join, px, tag
from batchyard.units import pluralize

#: rows of bars in one band
MAX_LANES = 64
#: number of colours, which the steps use in turn
COLOURS = 8

_BAND_GAP = 13
_MIN_BAND_PX = 13
_AREA_PX = 56
_MARKS_PX = 9
_SLOTS_GAP = 4
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
class Band:
    """The drawing of one step."""

    drawing: Markup
    height: float


def draw_timeline(
    steps: Sequence[StepFigures], begin_ms: int, end_ms: int, *, is_open: bool = False
) -> Markup:
    """Return the timeline with its legend. If the run ``is_open``, a line marks the last time."""
    wide, narrow = layout.wide(step.name for step in steps), layout.narrow()
    # The narrow chart has the fewest bars.
    small_steps = steps_with_bars(steps, narrow.max_bars)
    slots = {
        number: find_slots(number, step.stats, begin_ms, end_ms)
        for number, step in enumerate(steps)
        if step.stats.has_slots and number not in small_steps
    }
    charts = [
        _draw_chart(steps, slots, Scale(begin_ms, end_ms, one_layout), is_open)
        for one_layout in (wide, narrow)
    ]
    bar_steps = steps_with_bars(steps, wide.max_bars)
    legend = _draw_legend(steps, bar_steps, slots.keys() - bar_steps, is_open)
    return join((tag("div", charts, class_="scroll"), legend))


def _draw_chart(
    steps: Sequence[StepFigures], slots: Mapping[int, Sequence[Lane]], scale: Scale, is_open: bool
) -> Markup:
    bar_steps = steps_with_bars(steps, scale.layout.max_bars)
    top = float(AXIS_PX)
    bands = []
    for number, step in enumerate(steps):
        top += scale.layout.name_line
        if number in bar_steps:
            band = _draw_bars(step, scale, top)
        else:
            band = _draw_area(step, slots.get(number, ()), scale, top)
        labels = _draw_labels(step, scale, top)
        bands.append(tag("g", labels, band.drawing, class_=f"c{number % COLOURS}"))
        top += band.height + _BAND_GAP
    height = top - _BAND_GAP / 2
    return tag(
        "svg",
        tag("title", "Timeline of the children"),
        tag("desc", _describe(steps)),
        draw_axis(scale, height, is_open=is_open),
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
    stats = step.stats
    rows = _find_rows(stats)
    row_count = max(rows, default=0) + 1
    lane_px = next(height for max_lanes, height in _LANE_PX if row_count <= max_lanes)
    gap = 2 if lane_px > 6 else 1
    bars = []
    for i, lane in enumerate(rows):
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
    height = max(_MIN_BAND_PX, row_count * (lane_px + gap) - gap)
    marks = _draw_failure_marks(stats, scale, top + height + 2)
    return Band(
        tag("g", bars, marks, class_="bars small" if scale.layout.name_line else "bars"),
        height + (_MARKS_PX if marks else 0),
    )


def _find_rows(stats: AttemptStats) -> list[int]:
    """Return the row of each attempt: its slot, so that gaps are seen; else one that is free."""
    if not stats.has_slots or len(stats.hosts) > MAX_LANES:
        return lanes.pack(stats.starts_ms, stats.ends_ms)
    slots = sorted(stats.hosts, key=int)
    row_of = {stats.hosts[slot]: row for row, slot in enumerate(slots)}
    return [row_of[number] for number in stats.host_numbers]


def _draw_area(step: StepFigures, slots: Sequence[Lane], scale: Scale, top: float) -> Band:
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
    height = _AREA_PX + (_MARKS_PX if marks else 0)
    if not slots:
        return Band(join((shape, marks)), height)
    lanes_drawing, lanes_px = lane_chart.draw_slots(slots, scale, top + height + _SLOTS_GAP)
    return Band(join((shape, marks, lanes_drawing)), height + _SLOTS_GAP + lanes_px)


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
    name = scale.layout.draw_name(step.name, top + 10, top)
    if not step.peak:
        state = step.status.state
        text = "did not start" if state.is_terminal else state.value.lower()
        return join((name, tag("text", text, x=scale.left_px + 4, y=top + 10, class_="note")))
    if step.peak == 1:
        return name
    y = scale.layout.note_y(top + 10, top)
    peak = tag("text", f"{step.peak:,} at once", x=scale.layout.width, y=y, class_="peak")
    return join((name, peak))


def _draw_legend(
    steps: Sequence[StepFigures], bar_steps: set[int], slot_steps: set[int], is_open: bool
) -> Markup:
    """Return the meaning of each kind of mark in the chart."""
    bars: Counter[int] = Counter()
    areas: Counter[int] = Counter()
    for number, step in enumerate(steps):
        (bars if number in bar_steps else areas).update(step.stats.endings)
    triangle = "M9 2l-4 8h8z"
    box = {"x": 0, "y": 1, "width": 18, "height": 9}
    area = tag("path", d="M0 10V7H5V2H9V4H13V8H18V10Z", class_="area c6")
    line = tag("line", x1=9, x2=9, y1=-1, y2=12, class_="now")
    lane = tag(
        "g",
        tag("rect", class_="track", **{**box, "y": 3, "height": 5}),
        tag("rect", class_="l4 c6", **{**box, "y": 3, "width": 11, "height": 5}),
        class_="lanes",
    )
    has_failed_bar = bool(bars[Ending.FAILED] or bars[Ending.RETRIED])
    has_failed = bool(bars[Ending.FAILED] or areas[Ending.FAILED])
    has_retried = bool(bars[Ending.RETRIED] or areas[Ending.RETRIED])
    entries = [
        (bool(bars), "one attempt", tag("rect", class_="dot c6", **box)),
        (bool(areas), "how many attempts ran at each moment", area),
        (bool(slot_steps), "a slot: busy, and empty where nothing ran in it", lane),
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
