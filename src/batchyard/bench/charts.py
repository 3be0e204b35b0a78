"""The charts of times, speed-ups and candidates: a row for each operation on a logarithmic axis. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from batchyard.bench.axes import (
    MARKS,
    WIDTH,
    LogScale,
    legend,
    mark,
    plain_tick,
    scale_of,
    text_px,
    time_tick,
    vertical_grid,
    whisker,
    words_at,
)
from batchyard.bench.comparing import Comparison
from batchyard.bench.results import Measurement, Results, Trial, percentile
from batchyard.bench.tables import time_text, times_text
from batchyard.report.markup import Markup, join, tag

#: for the sizes, from as much to as much
_LEFT, _MOST_LEFT = 150, 340
#: between a size and its row
_NAME_GAP = 14
_RIGHT = 80
_TOP = 40
_LANE_PX = 15
_ROW_GAP = 7
_TITLE_PX = 24
#: a letter's circle
_LETTER_PX = 16
#: library -> its letter
LETTERS = {
    **{"NumPy": "N", "SciPy": "S", "OpenCV": "O", "PyTorch": "T", "Numba": "B"},
    **{"Pillow": "P", "CuPy": "C", "OpenCL": "L"},
}


@dataclass(frozen=True, slots=True)
class Series:
    """One device's times, with copies or without."""

    name: str
    results: Results
    has_copies: bool

    def times(self, key: tuple[str, int]) -> tuple[float, ...]:
        for one in self.results.good:
            if one.key == key:
                return one.with_copies_s if self.has_copies else one.warm_s
        return ()


def series_of(found: Sequence[Results]) -> list[Series]:
    series = []
    for results in found:
        name = f"{results.kind}: {results.name}"
        has_copies = any(one.with_copies_s for one in results.good)
        series.append(Series(f"{name}, without copies" if has_copies else name, results, False))
        if has_copies:
            series.append(Series(f"{name}, with copies", results, True))
    return series


def operations_of(
    found: Sequence[Results], is_wanted: Callable[[Measurement], bool] = lambda one: True
) -> list[Measurement]:
    """One of each, in the order of the first result that has it, sizes of a workload together."""
    seen: dict[tuple[str, int], Measurement] = {}
    for results in found:
        for one in filter(is_wanted, results.good):
            seen.setdefault(one.key, one)
    order = list(dict.fromkeys(one.workload for one in seen.values()))
    return sorted(seen.values(), key=lambda one: (order.index(one.workload), one.size))


# -- rows -------------------------------------------------------------------------------------------------------


def _left_of(operations: Sequence[Measurement]) -> float:
    """Where the rows begin: right of the longest size, if that is not too long."""
    return min(max([_LEFT, *(text_px(one.label) + _NAME_GAP for one in operations)]), _MOST_LEFT)


def _rows(
    operations: Sequence[Measurement],
    left: float,
    draw: Callable[[Measurement, float], tuple[Markup, float]],
) -> tuple[Markup, float]:
    """``draw`` (operation, top) -> a row and its height. The workload's title stands above its sizes."""
    drawn: list[Markup] = []
    top, title = float(_TOP), ""
    for one in operations:
        if one.title != title:
            title = one.title
            if drawn:
                drawn.append(tag("line", x1=0, x2=WIDTH, y1=top + 3, y2=top + 3, class_="base"))
                top += 6
            drawn.append(words_at(title, WIDTH, 0, top + 15, "title"))
            top += _TITLE_PX
        row, height = draw(one, top)
        label = words_at(
            one.label, left - _NAME_GAP, left - _NAME_GAP, top + height / 2 + 4, "name"
        )
        drawn += [label, row]
        top += height + _ROW_GAP
    return join(drawn), top


def _chart(
    title: str, desc: str, grid: Callable[[float], Markup], rows: Markup, height: float
) -> Markup:
    chart = tag(
        "svg",
        tag("title", title),
        tag("desc", desc),
        grid(height),
        rows,
        viewBox=f"0 0 {WIDTH} {height:.0f}",
        role="img",
        class_="chart",
    )
    return tag("div", chart, class_="scroll")


# -- times ------------------------------------------------------------------------------------------------------


def times_chart(found: Sequence[Results]) -> Markup:
    series, operations = series_of(found), operations_of(found)
    values = [seconds for one in series for op in operations for seconds in one.times(op.key)]
    left = _left_of(operations)
    scale = scale_of(values, left, WIDTH - _RIGHT)

    def draw(op: Measurement, top: float) -> tuple[Markup, float]:
        drawn, lane = [], 0
        for number, one in enumerate(series):
            times = sorted(one.times(op.key))
            if times:
                drawn.append(
                    _timed(number, one.name, op, times, scale, top + (lane + 0.5) * _LANE_PX)
                )
                lane += 1
        return join(drawn), max(1, lane) * _LANE_PX

    rows, height = _rows(operations, left, draw)
    ticks = [time_tick(value) for value in scale.ticks()]
    chart = _chart(
        "Time of one operation",
        "The median time of each operation on each device, with the 10th to 90th percentile; numbers in the table.",
        lambda bottom: vertical_grid(scale, _TOP, bottom, ticks),
        rows,
        height,
    )
    return join((chart, legend([(mark(n, 9, 6), one.name) for n, one in enumerate(series)])))


def _timed(
    number: int, name: str, op: Measurement, times: Sequence[float], scale: LogScale, y: float
) -> Markup:
    middle, low, high = (percentile(times, part) for part in (0.5, 0.1, 0.9))
    words = f"{op.operation}, {name}: {time_text(middle)} ({time_text(low)} to {time_text(high)})"
    said = tag("text", time_text(middle), x=scale.at(high) + 10, y=y + 4, class_="small value")
    return join(
        (whisker(number, scale, low, high, y), mark(number, scale.at(middle), y, words), said)
    )


# -- speed-up ---------------------------------------------------------------------------------------------------


def speed_up_chart(value: Comparison) -> Markup:
    """To the right of the line in the middle the second is faster, to the left the first."""
    rows_of = {row.first.key: row for row in value.counted}
    operations = [row.first for row in rows_of.values()]
    left_px = _left_of(operations)
    ups = [up for row in rows_of.values() for up in (row.speed_up, row.bare_speed_up) if up]
    scale = scale_of([*ups, 1.0], left_px, WIDTH - _RIGHT - 20)
    one_x = scale.at(1)
    has_copies = any(row.second.with_copies_s for row in rows_of.values())

    def draw(op: Measurement, top: float) -> tuple[Markup, float]:
        row, y = rows_of[op.key], top + _LANE_PX / 2
        up = row.speed_up or 1.0
        x = scale.at(up)
        bar = tag(
            "rect",
            x=min(x, one_x),
            y=y - 4,
            width=abs(x - one_x),
            height=8.0,
            class_="bar c0" if up < 1 else "bar c1",
        )
        bare = row.bare_speed_up if row.second.with_copies_s else None
        ring = mark(3, scale.at(bare), y, f"without copies {times_text(bare)}") if bare else None
        text = tag("text", times_text(up), x=WIDTH, y=y + 4, class_="peak value")
        return join((bar, ring, text)), _LANE_PX

    rows, height = _rows(operations, left_px, draw)
    ticks = [f"{plain_tick(tick)}x" for tick in scale.ticks()]

    def grid(bottom: float) -> Markup:
        middle = tag("line", x1=one_x, x2=one_x, y1=_TOP, y2=bottom, class_="even")
        left = tag("text", f"{value.first.label} faster", x=one_x - 10, y=14, class_="peak small")
        right = tag("text", f"{value.second.label} faster", x=one_x + 10, y=14, class_="small")
        said = tag(
            "text",
            "copies included" if has_copies else "speed-up",
            x=WIDTH,
            y=_TOP - 6,
            class_="peak small",
        )
        return join((vertical_grid(scale, _TOP, bottom, ticks), middle, left, right, said))

    chart = _chart(
        f"Speed-up of {value.second.label} over {value.first.label}",
        "How many times faster the second is, copies included; numbers in the table.",
        grid,
        rows,
        height,
    )
    bar = tag("rect", x=0, y=2, width=18, height=8, class_="bar c1")
    entries = [(bar, "speed-up, copies included" if has_copies else "speed-up")]
    if has_copies:
        entries.append((mark(3, 9, 6), "without copies"))
    return join((chart, legend(entries)))


# -- candidates -------------------------------------------------------------------------------------------------


def candidates_chart(results: Results) -> Markup:
    """What the choice of library and layout does, on one and the same device."""
    operations = [one for one in operations_of([results]) if len(_measured(one)) > 1]
    if not operations:
        return Markup()
    shares = [share for op in operations for _, share in _measured(op)]
    left = _left_of(operations)
    scale = scale_of([1.0, *shares], left + _LETTER_PX, WIDTH - _RIGHT, room=1.1)

    def draw(op: Measurement, top: float) -> tuple[Markup, float]:
        ends: list[float] = []
        drawn = []
        for trial, share in _measured(op):
            x = scale.at(share)
            lane = next((n for n, end in enumerate(ends) if x - end >= _LETTER_PX + 1), len(ends))
            ends[lane : lane + 1] = [x]
            drawn.append(_letter(trial, share, x, top + (lane + 0.5) * (_LETTER_PX + 1)))
        return join(drawn), len(ends) * (_LETTER_PX + 1.0)

    rows, height = _rows(operations, left, draw)
    ticks = [f"{plain_tick(tick)}x" for tick in scale.ticks()]
    chart = _chart(
        f"Candidates on the {results.kind}",
        "Time of every candidate that was tried, against the fastest; a letter for its library.",
        lambda bottom: vertical_grid(scale, _TOP, bottom, ticks),
        rows,
        height,
    )
    used = dict.fromkeys(_library(trial) for op in operations for trial, _ in _measured(op))
    return join((chart, legend([(_sign(LETTERS.get(name, "?"), 9, 6), name) for name in used])))


def _measured(op: Measurement) -> list[tuple[Trial, float]]:
    """With their times as multiples of the fastest's, in order."""
    tried = [one for one in op.tried if one.median_s is not None]
    best = min((one.median_s or 0.0 for one in tried), default=0.0)
    return (
        sorted(((one, (one.median_s or 0.0) / best) for one in tried), key=lambda pair: pair[1])
        if best
        else []
    )


def _library(trial: Trial) -> str:
    return trial.candidate.partition(",")[0]


def _letter(trial: Trial, share: float, x: float, y: float) -> Markup:
    words = f"{trial.candidate}: {time_text(trial.median_s)}, {times_text(share)}"
    return tag("g", tag("title", words), _sign(LETTERS.get(_library(trial), "?"), x, y))


def _sign(letter: str, x: float, y: float) -> Markup:
    number = list(LETTERS.values()).index(letter) if letter in LETTERS.values() else 0
    circle = tag(
        "circle", cx=x, cy=y, r=_LETTER_PX / 2 - 0.5, class_=f"letter c{number % (MARKS + 2)}"
    )
    return join((circle, tag("text", letter, x=x, y=y + 4, class_="in-letter")))
