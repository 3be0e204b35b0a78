"""The roofline: what a device can do for each byte, and how near each operation comes. Pure: numbers in, SVG out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchyard.bench.axes import WIDTH, LogScale, legend, mark, plain_tick, scale_of, vertical_grid
from batchyard.bench.charts import operations_of
from batchyard.bench.results import Measurement, Results
from batchyard.report.markup import Markup, join, px, tag

_LEFT, _RIGHT, _TOP, _HEIGHT = 70, 30, 40, 470
#: from a mark to its number: beside it, above, below, and further off where marks lie on one another
_AROUND = tuple(
    (x * far, y * far) for far in (1, 1.7, 2.5) for x, y in ((14, 0), (-14, 0), (0, -13), (0, 13), (13, -11))
)


@dataclass(frozen=True, slots=True)
class Point:
    number: int
    device: int
    measurement: Measurement
    intensity: float
    gflops: float


def points_of(found: Sequence[Results]) -> list[Point]:
    numbers = {one.key: number for number, one in enumerate(_placeable(found), 1)}
    return [
        Point(numbers[one.key], device, one, one.flops / one.traffic_bytes, one.gflops)
        for device, results in enumerate(found)
        for one in results.good
        if one.flops and one.traffic_bytes and one.gflops
    ]


def _placeable(found: Sequence[Results]) -> list[Measurement]:
    return [one for one in operations_of(found) if one.flops and one.traffic_bytes]


def roofline(found: Sequence[Results]) -> Markup:
    """Empty where no device's peaks are known."""
    points = points_of(found)
    roofs = [(n, one.peak.gflops, one.peak.gbytes_s) for n, one in enumerate(found)]
    if not points or not any(flops and gbytes for _, flops, gbytes in roofs):
        return Markup()
    across = scale_of([one.intensity for one in points], _LEFT, WIDTH - _RIGHT, room=1.6)
    heights = [one.gflops for one in points] + [flops for _, flops, _ in roofs if flops]
    up = scale_of(heights, _HEIGHT, _TOP, room=1.6)
    drawn: list[Markup] = []
    for number, flops, gbytes in roofs:
        if flops and gbytes:
            # Of two that are nearly the same, the second's words stand above the first's.
            same = sum(abs(up.at(other) - up.at(flops)) < 14 for _, other, _ in roofs[:number] if other)
            drawn.append(_roof(number, flops, gbytes, across, up, 14.0 * same))
    drawn.append(_points(points, across, up))
    chart = tag(
        "svg",
        tag("title", "Roofline"),
        tag("desc", "Operations a second against operations for each byte, under what each device can do at most."),
        _grid(across, up),
        drawn,
        viewBox=f"0 0 {WIDTH} {_HEIGHT + 44}",
        role="img",
        class_="chart",
    )
    names = [(mark(n, 9, 6), f"{one.kind}: {one.name}") for n, one in enumerate(found)]
    keys = [tag("li", f"{one.title}, {one.label}") for one in _placeable(found)]
    return join((tag("div", chart, class_="scroll"), legend(names), tag("ol", keys, class_="keys")))


def _grid(across: LogScale, up: LogScale) -> Markup:
    columns = vertical_grid(across, _TOP, _HEIGHT, [""] * len(across.ticks()))
    drawn = [tag("text", plain_tick(v), x=across.at(v), y=_HEIGHT + 18, class_="tick") for v in across.ticks()]
    for value in up.ticks():
        y = up.at(value)
        drawn.append(tag("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y, class_="grid"))
        drawn.append(tag("text", plain_tick(value), x=_LEFT - 8, y=y + 4, class_="peak small"))
    drawn.append(tag("text", "GFLOP/s", x=_LEFT - 8, y=_TOP - 16, class_="peak small"))
    drawn.append(tag("text", "operations for each byte", x=WIDTH - _RIGHT, y=_HEIGHT + 38, class_="peak small"))
    return join((columns, drawn))


def _roof(number: int, gflops: float, gbytes_s: float, across: LogScale, up: LogScale, higher: float) -> Markup:
    """Up with the bandwidth as far as the peak, then level."""
    ridge = gflops / gbytes_s
    left = max(across.low, up.low / gbytes_s)
    corner = min(max(ridge, left), across.high)
    start = f"M{px(across.at(left))} {px(up.at(left * gbytes_s))}"
    path = f"{start}L{px(across.at(corner))} {px(up.at(min(gflops, corner * gbytes_s)))}H{px(across.end)}"
    words = f"at most {gflops:,.0f} GFLOP/s, {gbytes_s:,.0f} GB/s"
    line = tag("path", tag("title", words), d=path, class_=f"roof roof{number % 3} c{number % 6}")
    # At the bend, where fewer points are than at the end.
    x = min(across.at(corner) + 8, across.end - 180)
    return join((line, tag("text", words, x=x, y=up.at(gflops) - 8 - higher, class_="small")))


def _points(points: Sequence[Point], across: LogScale, up: LogScale) -> Markup:
    """Numbers stand where no other number or mark is, if there is such a place."""
    marks = [(across.at(one.intensity), up.at(one.gflops)) for one in points]
    taken = list(marks)
    drawn = []
    for one, (x, y) in zip(points, marks, strict=True):
        words = f"{one.measurement.operation}: {one.gflops:,.1f} GFLOP/s at {one.intensity:.1f} for each byte"
        places = [(x + dx, y + dy) for dx, dy in _AROUND]
        free = (place for place in places if not any(_overlap(place, other) for other in taken))
        place = next(free, places[0])
        taken.append(place)
        number = tag("text", str(one.number), x=place[0], y=place[1] + 4, class_="tick value")
        drawn += [mark(one.device, x, y, words), number]
    return join(drawn)


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return abs(one[0] - other[0]) < 13 and abs(one[1] - other[1]) < 11
