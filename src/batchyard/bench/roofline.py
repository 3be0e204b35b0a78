"""The roofline: what a device can do for each byte, and how near each operation comes. Pure: numbers in, SVG out."""

from __future__ import annotations

from collections.abc import Sequence
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
    vertical_grid,
)
from batchyard.bench.charts import operations_of
from batchyard.bench.results import Measurement, Peak, Results
from batchyard.report.markup import Markup, join, px, tag

_LEFT, _RIGHT, _TOP, _HEIGHT = 70, 30, 40, 470
#: from a mark to its number: beside it, above, below, askew; further off where marks lie on one another
_AROUND = tuple(
    (x * far, y * far)
    for far in (1, 1.7, 2.5, 3.5, 4.5, 6)
    for x, y in ((14, 0), (-14, 0), (0, -13), (0, 13), (13, -11), (-13, -11), (13, 11), (-13, 11))
)
#: a mark and the height of a number
_MARK_PX, _NUMBER_PX = 11.0, 11.0


@dataclass(frozen=True, slots=True)
class Point:
    number: int
    device: int
    measurement: Measurement
    intensity: float
    gflops: float


def points_of(found: Sequence[Results]) -> list[Point]:
    numbers = {one.key: number for number, one in enumerate(operations_of(found, _has_place), 1)}
    return [
        Point(numbers[one.key], device, one, one.flops / one.traffic_bytes, one.gflops)
        for device, results in enumerate(found)
        for one in results.good
        if one.flops and one.traffic_bytes and one.gflops
    ]


def _has_place(one: Measurement) -> bool:
    return bool(one.flops and one.traffic_bytes and one.gflops)


def roofline(found: Sequence[Results]) -> Markup:
    """Empty where no device's peaks are known."""
    points = points_of(found)
    roofs = [(n, one.peak.gflops, one.peak.gbytes_s) for n, one in enumerate(found)]
    if not points or not any(flops and gbytes for _, flops, gbytes in roofs):
        return Markup()
    across = scale_of([one.intensity for one in points], _LEFT, WIDTH - _RIGHT, room=1.6)
    heights = [one.gflops for one in points] + [flops for _, flops, _ in roofs if flops]
    up = scale_of(heights, _HEIGHT, _TOP, room=1.6)
    drawn = [
        _roof(number, flops, gbytes, across, up)
        for number, flops, gbytes in roofs
        if flops and gbytes
    ]
    drawn.append(_points(points, across, up))
    chart = tag(
        "svg",
        tag("title", "Roofline"),
        tag(
            "desc",
            "Operations a second against operations for each byte, under what each device can do at most.",
        ),
        _grid(across, up),
        drawn,
        viewBox=f"0 0 {WIDTH} {_HEIGHT + 44}",
        role="img",
        class_="chart",
    )
    names = [(_sign(n), f"{one.kind}: {one.name}{_most(one.peak)}") for n, one in enumerate(found)]
    keys = [tag("li", one.operation) for one in operations_of(found, _has_place)]
    return join((tag("div", chart, class_="scroll"), legend(names), tag("ol", keys, class_="keys")))


def _sign(number: int) -> Markup:
    """A device's mark on its line."""
    return join((tag("path", d="M0 6H18", class_=_roof_class(number)), mark(number, 9, 6)))


def _roof_class(number: int) -> str:
    return f"roof roof{number % 3} c{number % MARKS}"


def _most(peak: Peak) -> str:
    # Beneath the chart: on it the words of devices that are alike would stand on one another.
    return (
        f", at most {peak.gflops:,.0f} GFLOP/s, {peak.gbytes_s:,.0f} GB/s"
        if peak.gflops and peak.gbytes_s
        else ""
    )


def _grid(across: LogScale, up: LogScale) -> Markup:
    columns = vertical_grid(across, _TOP, _HEIGHT, [""] * len(across.ticks()))
    drawn = [
        tag("text", plain_tick(v), x=across.at(v), y=_HEIGHT + 18, class_="tick")
        for v in across.ticks()
    ]
    for value in up.ticks():
        y = up.at(value)
        drawn.append(tag("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y, class_="grid"))
        drawn.append(tag("text", plain_tick(value), x=_LEFT - 8, y=y + 4, class_="peak small"))
    drawn.append(tag("text", "GFLOP/s", x=_LEFT - 8, y=_TOP - 16, class_="peak small"))
    drawn.append(
        tag(
            "text",
            "operations for each byte",
            x=WIDTH - _RIGHT,
            y=_HEIGHT + 38,
            class_="peak small",
        )
    )
    return join((columns, drawn))


def _roof(number: int, gflops: float, gbytes_s: float, across: LogScale, up: LogScale) -> Markup:
    """Up with the bandwidth as far as the peak, then level."""
    ridge = gflops / gbytes_s
    left = max(across.low, up.low / gbytes_s)
    corner = min(max(ridge, left), across.high)
    start = f"M{px(across.at(left))} {px(up.at(min(gflops, left * gbytes_s)))}"
    path = f"{start}L{px(across.at(corner))} {px(up.at(min(gflops, corner * gbytes_s)))}H{px(across.end)}"
    words = f"at most {gflops:,.0f} GFLOP/s, {gbytes_s:,.0f} GB/s"
    return tag("path", tag("title", words), d=path, class_=_roof_class(number))


def _points(points: Sequence[Point], across: LogScale, up: LogScale) -> Markup:
    """Numbers stand where no other number or mark is; where there is no such place, only who points at it is told.

    Devices that did the same operation alike share a number.
    """
    marks = [(across.at(one.intensity), up.at(one.gflops)) for one in points]
    taken = [_Box(x, y, _MARK_PX, _MARK_PX) for x, y in marks]
    numbered: list[tuple[int, _Box]] = []
    drawn = []
    for one, (x, y) in zip(points, marks, strict=True):
        rate = f"{one.gflops:,.1f} GFLOP/s at {one.intensity:.1f} for each byte"
        words = f"{one.number}. {one.measurement.operation}: {rate}"
        drawn.append(mark(one.device, x, y, words))
        here = _Box(x, y, _MARK_PX, _MARK_PX)
        if any(number == one.number and here.overlaps(box) for number, box in numbered):
            continue
        wide = text_px(str(one.number), 11) + 2
        places = [_Box(x + dx, y + dy, wide, _NUMBER_PX) for dx, dy in _AROUND]
        place = next(
            (box for box in places if box.is_inside and not any(map(box.overlaps, taken))), None
        )
        if place is not None:
            taken.append(place)
            numbered.append((one.number, here))
            drawn.append(
                tag("text", str(one.number), x=place.x, y=place.y + 4, class_="tick value")
            )
    return join(drawn)


@dataclass(frozen=True, slots=True)
class _Box:
    """By its middle."""

    x: float
    y: float
    width: float
    height: float

    @property
    def is_inside(self) -> bool:
        half = self.width / 2
        return (
            _LEFT <= self.x - half
            and self.x + half <= WIDTH - _RIGHT + 20
            and _TOP <= self.y <= _HEIGHT - 6
        )

    def overlaps(self, other: _Box) -> bool:
        return (
            abs(self.x - other.x) < (self.width + other.width) / 2
            and abs(self.y - other.y) < (self.height + other.height) / 2
        )
