"""Draw the charts of times, speed-ups and candidates, one row per operation. Pure."""

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
    text_at,
    text_px,
    time_tick,
    vertical_grid,
    whisker,
)
from batchyard.bench.comparing import Comparison, Row
from batchyard.bench.results import Measurement, Results, Trial, percentile
from batchyard.bench.tables import time_text, times_text
from batchyard.report.markup import Markup, join, tag

#: smallest and largest width of the column of sizes
_MIN_LABEL_PX, _MAX_LABEL_PX = 150, 340
#: between the label of a size and its row
_NAME_GAP = 14
_RIGHT = 80
_TOP = 40
_LANE_PX = 15
_ROW_GAP = 7
_TITLE_PX = 24
#: diameter of the circle around a letter
_LETTER_PX = 16
#: library -> its letter in the chart of candidates
LETTERS = {
    **{"NumPy": "N", "SciPy": "S", "OpenCV": "O", "PyTorch": "T", "Numba": "B"},
    **{"Pillow": "P", "CuPy": "C", "OpenCL": "L"},
}


@dataclass(frozen=True, slots=True)
class Series:
    """The times of one device, with or without copies."""

    name: str
    results: Results
    has_copies: bool

    def times(self, key: tuple[str, int]) -> tuple[float, ...]:
        """Return the times of an operation in seconds; empty if it was not measured."""
        for measurement in self.results.successes:
            if measurement.key == key:
                return measurement.with_copies_s if self.has_copies else measurement.warm_s
        return ()


def series_of(all_results: Sequence[Results]) -> list[Series]:
    """Return one series per device, or two if its copies were measured."""
    series = []
    for results in all_results:
        name = f"{results.kind}: {results.name}"
        has_copies = any(measurement.with_copies_s for measurement in results.successes)
        series.append(Series(f"{name}, without copies" if has_copies else name, results, False))
        if has_copies:
            series.append(Series(f"{name}, with copies", results, True))
    return series


def operations_of(
    all_results: Sequence[Results],
    is_included: Callable[[Measurement], bool] = lambda measurement: True,
) -> list[Measurement]:
    """Return one measurement of each operation, with the sizes of a workload together.

    Workloads are in the order in which the results have them first.
    """
    operations: dict[tuple[str, int], Measurement] = {}
    for results in all_results:
        for measurement in filter(is_included, results.successes):
            operations.setdefault(measurement.key, measurement)
    order = list(dict.fromkeys(operation.workload for operation in operations.values()))
    return sorted(operations.values(), key=lambda op: (order.index(op.workload), op.size))


# -- rows --


def _label_px(operations: Sequence[Measurement]) -> float:
    """Return the width of the column of sizes: that of the longest size, within limits."""
    widths_px = [text_px(operation.label) + _NAME_GAP for operation in operations]
    return min(max([_MIN_LABEL_PX, *widths_px]), _MAX_LABEL_PX)


def _rows(
    operations: Sequence[Measurement],
    label_px: float,
    draw: Callable[[Measurement, float], tuple[Markup, float]],
) -> tuple[Markup, float]:
    """Draw all rows, with the title of a workload above its sizes. Returns their height too.

    ``draw``: (operation, top) -> a row and its height.
    """
    drawn: list[Markup] = []
    top, title = float(_TOP), ""
    for operation in operations:
        if operation.title != title:
            title = operation.title
            if drawn:
                drawn.append(tag("line", x1=0, x2=WIDTH, y1=top + 3, y2=top + 3, class_="base"))
                top += 6
            drawn.append(text_at(title, WIDTH, 0, top + 15, "title"))
            top += _TITLE_PX
        row, height = draw(operation, top)
        right = label_px - _NAME_GAP
        drawn += [text_at(operation.label, right, right, top + height / 2 + 4, "name"), row]
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


# -- times --


def times_chart(all_results: Sequence[Results]) -> Markup:
    """Draw the median times of each operation on each device."""
    all_series, operations = series_of(all_results), operations_of(all_results)
    all_times_s = [
        seconds for series in all_series for op in operations for seconds in series.times(op.key)
    ]
    label_px = _label_px(operations)
    scale = scale_of(all_times_s, label_px, WIDTH - _RIGHT)

    def draw(op: Measurement, top: float) -> tuple[Markup, float]:
        drawn, lane = [], 0
        for number, series in enumerate(all_series):
            times_s = sorted(series.times(op.key))
            if times_s:
                y = top + (lane + 0.5) * _LANE_PX
                drawn.append(_draw_times(number, series.name, op, times_s, scale, y))
                lane += 1
        return join(drawn), max(1, lane) * _LANE_PX

    rows, height = _rows(operations, label_px, draw)
    ticks = [time_tick(value) for value in scale.ticks()]
    chart = _chart(
        "Time of one operation",
        "The median time of each operation on each device, with the 10th to 90th percentile; "
        "numbers in the table.",
        lambda bottom: vertical_grid(scale, _TOP, bottom, ticks),
        rows,
        height,
    )
    entries = [(mark(number, 9, 6), series.name) for number, series in enumerate(all_series)]
    return join((chart, legend(entries)))


def _draw_times(
    number: int, name: str, op: Measurement, times_s: Sequence[float], scale: LogScale, y: float
) -> Markup:
    middle, low, high = (percentile(times_s, fraction) for fraction in (0.5, 0.1, 0.9))
    tooltip = f"{op.operation}, {name}: {time_text(middle)} ({time_text(low)} to {time_text(high)})"
    label = tag("text", time_text(middle), x=scale.at(high) + 10, y=y + 4, class_="small value")
    return join(
        (whisker(number, scale, low, high, y), mark(number, scale.at(middle), y, tooltip), label)
    )


# -- speed-up --


def speed_up_chart(comparison: Comparison) -> Markup:
    """Draw the speed-up of each operation: bars to the right where the second side is faster.

    Empty for a stand-in, whose speed-up would be read as that of a GPU.
    """
    if comparison.has_stand_in:
        return Markup()
    rows_by_key = {row.first.key: row for row in comparison.comparable_rows}
    operations = [row.first for row in rows_by_key.values()]
    label_px = _label_px(operations)
    factors = [
        factor
        for row in rows_by_key.values()
        for factor in (row.speed_up, row.bare_speed_up)
        if factor
    ]
    scale = scale_of([*factors, 1.0], label_px, WIDTH - _RIGHT - 20)
    has_copies = any(row.second.with_copies_s for row in rows_by_key.values())

    def draw(op: Measurement, top: float) -> tuple[Markup, float]:
        return _draw_speed_up(rows_by_key[op.key], scale, top + _LANE_PX / 2), _LANE_PX

    def grid(bottom: float) -> Markup:
        return _speed_up_grid(comparison, scale, bottom, has_copies)

    rows, height = _rows(operations, label_px, draw)
    chart = _chart(
        f"Speed-up of {comparison.second.label} over {comparison.first.label}",
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


def _draw_speed_up(row: Row, scale: LogScale, y: float) -> Markup:
    factor = row.speed_up or 1.0
    x, even_x = scale.at(factor), scale.at(1)
    bar = tag(
        "rect",
        x=min(x, even_x),
        y=y - 4,
        width=abs(x - even_x),
        height=8.0,
        class_="bar c0" if factor < 1 else "bar c1",
    )
    bare = row.bare_speed_up if row.second.with_copies_s else None
    ring = mark(3, scale.at(bare), y, f"without copies {times_text(bare)}") if bare else None
    text = tag("text", times_text(factor), x=WIDTH, y=y + 4, class_="peak value")
    return join((bar, ring, text))


def _speed_up_grid(
    comparison: Comparison, scale: LogScale, bottom: float, has_copies: bool
) -> Markup:
    even_x = scale.at(1)
    middle = tag("line", x1=even_x, x2=even_x, y1=_TOP, y2=bottom, class_="even")
    first_text, second_text = (
        f"{side.label} faster" for side in (comparison.first, comparison.second)
    )
    first = tag("text", first_text, x=even_x - 10, y=14, class_="peak small")
    second = tag("text", second_text, x=even_x + 10, y=14, class_="small")
    heading = tag(
        "text",
        "copies included" if has_copies else "speed-up",
        x=WIDTH,
        y=_TOP - 6,
        class_="peak small",
    )
    ticks = [f"{plain_tick(tick)}x" for tick in scale.ticks()]
    return join((vertical_grid(scale, _TOP, bottom, ticks), middle, first, second, heading))


# -- candidates --


def candidates_chart(results: Results) -> Markup:
    """Draw the times of all candidates of one device; empty if no operation has several."""
    operations = [op for op in operations_of([results]) if len(_factors(op)) > 1]
    if not operations:
        return Markup()
    factors = [factor for op in operations for _, factor in _factors(op)]
    label_px = _label_px(operations)
    scale = scale_of([1.0, *factors], label_px + _LETTER_PX, WIDTH - _RIGHT, margin=1.1)

    def draw(op: Measurement, top: float) -> tuple[Markup, float]:
        ends: list[float] = []
        drawn = []
        for trial, factor in _factors(op):
            x = scale.at(factor)
            lane = next((n for n, end in enumerate(ends) if x - end >= _LETTER_PX + 1), len(ends))
            ends[lane : lane + 1] = [x]
            drawn.append(_letter(trial, factor, x, top + (lane + 0.5) * (_LETTER_PX + 1)))
        return join(drawn), len(ends) * (_LETTER_PX + 1.0)

    rows, height = _rows(operations, label_px, draw)
    ticks = [f"{plain_tick(tick)}x" for tick in scale.ticks()]
    chart = _chart(
        f"Candidates on the {results.kind}",
        "Time of every candidate that was tried, against the fastest; a letter for its library.",
        lambda bottom: vertical_grid(scale, _TOP, bottom, ticks),
        rows,
        height,
    )
    libraries = dict.fromkeys(_library(trial) for op in operations for trial, _ in _factors(op))
    entries = [(_sign(LETTERS.get(name, "?"), 9, 6), name) for name in libraries]
    return join((chart, legend(entries)))


def _factors(op: Measurement) -> list[tuple[Trial, float]]:
    """Return the measured trials, fastest first, with their times as multiples of the fastest."""
    times_s = [(trial, trial.median_s) for trial in op.tried if trial.median_s is not None]
    best_s = min((seconds for _, seconds in times_s), default=0.0)
    if not best_s:
        return []
    factors = [(trial, seconds / best_s) for trial, seconds in times_s]
    return sorted(factors, key=lambda pair: pair[1])


def _library(trial: Trial) -> str:
    return trial.candidate.partition(",")[0]


def _letter(trial: Trial, factor: float, x: float, y: float) -> Markup:
    tooltip = f"{trial.candidate}: {time_text(trial.median_s)}, {times_text(factor)}"
    return tag("g", tag("title", tooltip), _sign(LETTERS.get(_library(trial), "?"), x, y))


def _sign(letter: str, x: float, y: float) -> Markup:
    number = list(LETTERS.values()).index(letter) if letter in LETTERS.values() else 0
    circle = tag(
        "circle", cx=x, cy=y, r=_LETTER_PX / 2 - 0.5, class_=f"letter c{number % (MARKS + 2)}"
    )
    return join((circle, tag("text", letter, x=x, y=y + 4, class_="in-letter")))
