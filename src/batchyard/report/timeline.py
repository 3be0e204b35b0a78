"""The timeline: a band for each step, in it what ran when. Pure: figures in, SVG out.

A step of few attempts shows each as a bar; one of many shows how many ran at each moment, so that a page about
100,000 children is as small as one about 100.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from batchyard.report import lanes
from batchyard.report.amounts import counted, duration, elapsed_ticks, tick_label
from batchyard.report.figures import Fate, StepFigures, Tally
from batchyard.report.markup import Markup, join, px, tag

#: bars on one page; beyond, the steps with the most attempts are drawn as areas
MAX_BARS = 2000
#: rows of bars in one band
MAX_LANES = 64
#: steps have so many colours, in turn
COLOURS = 8

WIDTH = 1080
_RIGHT = 84
_TOP = 26
_BAND_GAP = 13
_MIN_BAND_PX = 13
_AREA_PX = 56
_RUG_PX = 9
_COLUMN_PX = 1.5
_MARK_PX = 2
_MIN_BAR_PX = 1.2
#: (up to so many lanes, height of each)
_LANE_PX = ((4, 13), (8, 10), (16, 7), (32, 5), (MAX_LANES, 3))

_ENDINGS = {Fate.SUCCEEDED: "", Fate.FAILED: ", failed", Fate.RETRIED: ", failed and tried again"}


@dataclass(frozen=True, slots=True)
class Scale:
    """Where a moment is on the page."""

    begin_ms: int
    end_ms: int
    left: float

    @property
    def width(self) -> float:
        return WIDTH - self.left - _RIGHT

    def x(self, at_ms: float) -> float:
        part = (at_ms - self.begin_ms) / max(1, self.end_ms - self.begin_ms)
        return self.left + self.width * min(1.0, max(0.0, part))


@dataclass(frozen=True, slots=True)
class Band:
    drawing: Markup
    height: float


def timeline(
    steps: Sequence[StepFigures], begin_ms: int, end_ms: int, *, is_open: bool = False
) -> Markup:
    """``is_open``: the run is not over, and its time so far ends at a line that says so."""
    scale = Scale(begin_ms, end_ms, left_margin(step.name for step in steps))
    barred = shown_as_bars(steps)
    top = float(_TOP)
    bands = []
    for number, step in enumerate(steps):
        band = (_bars if number in barred else _area)(step, scale, top)
        bands.append(
            tag("g", _labels(step, scale, top), band.drawing, class_=f"c{number % COLOURS}")
        )
        top += band.height + _BAND_GAP
    height = top - _BAND_GAP / 2
    chart = tag(
        "svg",
        tag("title", "Timeline of the children"),
        tag("desc", _in_words(steps)),
        _axis(scale, height, is_open),
        bands,
        viewBox=f"0 0 {WIDTH} {px(height)}",
        role="img",
        class_="chart",
    )
    return join((tag("div", chart, class_="scroll"), _legend(steps, barred, is_open)))


def shown_as_bars(steps: Sequence[StepFigures]) -> set[int]:
    """The steps, by number, whose attempts are all drawn: the smallest first, as long as there is room."""
    chosen, room = set(), MAX_BARS
    for number, step in sorted(enumerate(steps), key=lambda pair: pair[1].tally.count):
        if step.tally.count <= room and step.peak <= MAX_LANES:
            room -= step.tally.count
            chosen.add(number)
    return chosen


def left_margin(names: Iterable[str]) -> float:
    """Room for the longest name beside the plot."""
    return min(240.0, max(70.0, 18 + 7.0 * max(map(len, names), default=0)))


def _bars(step: StepFigures, scale: Scale, top: float) -> Band:
    tally, peak = step.tally, step.peak
    lane_px = next(px_ for most, px_ in _LANE_PX if peak <= most)
    gap = 2 if lane_px > 6 else 1
    drawn = []
    for i, lane in enumerate(lanes.pack(tally.starts_ms, tally.ends_ms)):
        start, end = scale.x(tally.starts_ms[i]), scale.x(tally.ends_ms[i])
        is_failed = tally.fates[i] != Fate.SUCCEEDED
        drawn.append(
            tag(
                "rect",
                tag("title", _of_attempt(step.name, tally, i)),
                x=start,
                y=top + lane * (lane_px + gap),
                width=max(_MIN_BAR_PX, end - start - 0.4),
                height=lane_px,
                class_="failed" if is_failed else None,
            )
        )
    height = max(_MIN_BAND_PX, max(1, peak) * (lane_px + gap) - gap)
    rug = _rug(tally, scale, top + height + 2)
    return Band(tag("g", drawn, rug, class_="bars"), height + (_RUG_PX if rug else 0))


def _area(step: StepFigures, scale: Scale, top: float) -> Band:
    tally, peak = step.tally, step.peak
    columns = int(scale.width / _COLUMN_PX)
    counts = lanes.running(tally.starts_ms, tally.ends_ms, scale.begin_ms, scale.end_ms, columns)
    floor, unit = top + _AREA_PX, _AREA_PX / max(peak, 1)
    path, before = [f"M{px(scale.left)} {px(floor)}"], px(floor)
    for number, height in enumerate(counts):
        y = px(floor - min(height, peak) * unit)
        if y != before:
            path.append(f"H{px(scale.left + number * scale.width / columns)}V{y}")
            before = y
    path.append(f"H{px(scale.left + scale.width)}V{px(floor)}Z")
    words = f"{step.name}: {counted(tally.count, 'attempt')}, at most {peak:,} at once"
    shape = tag("path", tag("title", words), d="".join(path), class_="area")
    rug = _rug(tally, scale, floor + 2)
    return Band(join((shape, rug)), _AREA_PX + (_RUG_PX if rug else 0))


def _rug(tally: Tally, scale: Scale, top: float) -> Markup:
    """Under the band, a mark wherever attempts failed: also seen where a bar is too short, or there is none."""
    marks: Counter[tuple[int, int]] = Counter()
    for end, fate in zip(tally.ends_ms, tally.fates, strict=True):
        if fate != Fate.SUCCEEDED:
            marks[round(scale.x(end) / _MARK_PX), fate] += 1
    drawn = []
    # Final failures last, so that they lie on top.
    for (place, fate), count in sorted(marks.items(), key=lambda mark: (-mark[0][1], mark[0][0])):
        is_final = fate == Fate.FAILED
        what = f"{counted(count, 'attempt')} failed" + ("" if is_final else ", tried again")
        shape = f"M{px(place * _MARK_PX)} {px(top)}l-3 6h6z"
        drawn.append(
            tag("path", tag("title", what), d=shape, class_="mark" if is_final else "mark again")
        )
    return join(drawn)


def _labels(step: StepFigures, scale: Scale, top: float) -> Markup:
    name = tag("text", step.name, x=scale.left - 12, y=top + 10, class_="name")
    if not step.peak:
        state = step.status.state
        said = "did not start" if state.is_terminal else state.value.lower()
        return join((name, tag("text", said, x=scale.left + 4, y=top + 10, class_="note")))
    peak = (
        tag("text", f"{step.peak:,} at once", x=WIDTH, y=top + 10, class_="peak")
        if step.peak > 1
        else None
    )
    return join((name, peak))


def _axis(scale: Scale, height: float, is_open: bool) -> Markup:
    span_ms = scale.end_ms - scale.begin_ms
    drawn = []
    for seconds in elapsed_ticks(span_ms / 1000):
        x = scale.x(scale.begin_ms + seconds * 1000)
        drawn.append(tag("line", x1=x, x2=x, y1=_TOP - 8, y2=height, class_="grid"))
        drawn.append(tag("text", tick_label(seconds), x=x, y=_TOP - 13, class_="tick"))
    if is_open:
        x = scale.x(scale.end_ms)
        drawn.append(tag("line", x1=x, x2=x, y1=_TOP - 8, y2=height, class_="now"))
    return tag("g", drawn, class_="axis")


def _legend(steps: Sequence[StepFigures], barred: set[int], is_open: bool) -> Markup:
    """What the marks mean, of those that are there."""
    bars = [
        step.tally.fates
        for number, step in enumerate(steps)
        if number in barred and step.tally.count
    ]
    fates = {fate for fate in Fate if any(step.tally.fates.count(fate) for step in steps)}
    box = {"x": 0, "y": 1, "width": 18, "height": 9}
    entries = []
    if bars:
        entries.append(("one attempt", tag("rect", class_="dot c6", **box)))
    if len(bars) < sum(step.tally.count > 0 for step in steps):
        shape = tag("path", d="M0 10V7H5V2H9V4H13V8H18V10Z", class_="area c6")
        entries.append(("how many attempts ran at each moment", shape))
    if any(len(found) > found.count(Fate.SUCCEEDED) for found in bars):
        entries.append(("an attempt that failed", tag("rect", class_="failed", **box)))
    if Fate.FAILED in fates:
        entries.append(("a child failed for good", tag("path", d="M9 2l-4 8h8z", class_="mark")))
    if Fate.RETRIED in fates:
        entries.append(
            ("failed, and tried again", tag("path", d="M9 2l-4 8h8z", class_="mark again"))
        )
    if is_open:
        line = tag("line", x1=9, x2=9, y1=-1, y2=12, class_="now")
        entries.append(("the last that is known; what still runs is not drawn", line))
    items = [
        tag("li", tag("svg", sign, width=18, height=11, aria_hidden="true"), words)
        for words, sign in entries
    ]
    return tag("ul", items, class_="legend")


def _of_attempt(step: str, tally: Tally, i: int) -> str:
    number = f", attempt {tally.numbers[i]}" if tally.numbers[i] > 1 else ""
    end = _ENDINGS[Fate(tally.fates[i])]
    return f"{step}:{tally.indices[i]}{number}: {duration((tally.ends_ms[i] - tally.starts_ms[i]) / 1000)}{end}"


def _in_words(steps: Sequence[StepFigures]) -> str:
    """For those who do not see it; the table of steps has the numbers."""
    parts = []
    for step in steps:
        failed = step.tally.count - step.tally.fates.count(Fate.SUCCEEDED)
        more = f", {failed:,} of them failed" if failed else ""
        parts.append(f"{step.name}: {counted(step.tally.count, 'attempt')}{more}")
    return "When the attempts of each step ran. " + "; ".join(parts) + "."
