"""Draw the roofline chart: the limits of each device, and how near each operation comes. Pure."""

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
#: offsets of a number from its mark, in the order in which they are tried
_NUMBER_OFFSETS = tuple(
    (x * distance, y * distance)
    for distance in (1, 1.7, 2.5, 3.5, 4.5, 6)
    for x, y in ((14, 0), (-14, 0), (0, -13), (0, 13), (13, -11), (-13, -11), (13, 11), (-13, 11))
)
#: size of a mark, and height of a number
_MARK_PX, _NUMBER_PX = 11.0, 11.0


@dataclass(frozen=True, slots=True)
class Point:
    """An operation on a device."""

    #: number of the operation in the list below the chart
    number: int
    #: index of the device
    device: int
    measurement: Measurement
    intensity: float
    gflops: float


def points_of(all_results: Sequence[Results]) -> list[Point]:
    """Return the operations whose operations and bytes are known, on each device."""
    operations = operations_of(all_results, _has_point)
    numbers = {operation.key: number for number, operation in enumerate(operations, 1)}
    return [
        Point(
            numbers[measurement.key],
            device,
            measurement,
            measurement.flops / measurement.traffic_bytes,
            measurement.gflops,
        )
        for device, results in enumerate(all_results)
        for measurement in results.successes
        if measurement.flops and measurement.traffic_bytes and measurement.gflops
    ]


def _has_point(measurement: Measurement) -> bool:
    return bool(measurement.flops and measurement.traffic_bytes and measurement.gflops)


def roofline(all_results: Sequence[Results]) -> Markup:
    """Draw the chart; empty if the peak rates of no device are known."""
    points = points_of(all_results)
    roofs = [
        (number, results.peak.gflops, results.peak.gbytes_s)
        for number, results in enumerate(all_results)
        if results.peak.gflops and results.peak.gbytes_s
    ]
    if not points or not roofs:
        return Markup()
    across, up = _scales(points, all_results)
    drawn = [
        _roof(number, gflops or 0.0, gbytes_s or 0.0, across, up)
        for number, gflops, gbytes_s in roofs
    ]
    drawn.append(_points(points, across, up))
    chart = tag(
        "svg",
        tag("title", "Roofline"),
        tag(
            "desc",
            "Operations a second against operations for each byte, "
            "under what each device can do at most.",
        ),
        _grid(across, up),
        drawn,
        viewBox=f"0 0 {WIDTH} {_HEIGHT + 44}",
        role="img",
        class_="chart",
    )
    names = [
        (_sign(number), f"{results.kind}: {results.name}{_peak_text(results.peak)}")
        for number, results in enumerate(all_results)
    ]
    keys = [tag("li", op.operation) for op in operations_of(all_results, _has_point)]
    return join((tag("div", chart, class_="scroll"), legend(names), tag("ol", keys, class_="keys")))


def _scales(points: Sequence[Point], all_results: Sequence[Results]) -> tuple[LogScale, LogScale]:
    """Return the horizontal and the vertical scale."""
    intensities = [point.intensity for point in points]
    gflops = [point.gflops for point in points]
    gflops += [results.peak.gflops for results in all_results if results.peak.gflops]
    return (
        scale_of(intensities, _LEFT, WIDTH - _RIGHT, margin=1.6),
        scale_of(gflops, _HEIGHT, _TOP, margin=1.6),
    )


def _sign(number: int) -> Markup:
    """Draw the mark of a device on its line, for the legend."""
    return join((tag("path", d="M0 6H18", class_=_roof_class(number)), mark(number, 9, 6)))


def _roof_class(number: int) -> str:
    return f"roof roof{number % 3} c{number % MARKS}"


def _peak_text(peak: Peak) -> str:
    # In the legend, because in the chart the texts of similar devices would overlap.
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
    """Draw the limit of a device: rising with the bandwidth up to the peak, then level."""
    ridge = gflops / gbytes_s
    start = max(across.low, up.low / gbytes_s)
    corner = min(max(ridge, start), across.high)

    def point(intensity: float) -> str:
        return f"{px(across.at(intensity))} {px(up.at(min(gflops, intensity * gbytes_s)))}"

    path = f"M{point(start)}L{point(corner)}H{px(across.end)}"
    tooltip = f"at most {gflops:,.0f} GFLOP/s, {gbytes_s:,.0f} GB/s"
    return tag("path", tag("title", tooltip), d=path, class_=_roof_class(number))


def _points(points: Sequence[Point], across: LogScale, up: LogScale) -> Markup:
    """Draw the marks, and their numbers where they overlap no other number or mark.

    If there is no such place, the number is only in the tooltip of the mark. Devices with nearly
    the same rate of an operation share its number.
    """
    marks = [
        _Box(across.at(point.intensity), up.at(point.gflops), _MARK_PX, _MARK_PX)
        for point in points
    ]
    occupied = list(marks)
    numbered: list[tuple[int, _Box]] = []
    drawn = []
    for point, box in zip(points, marks, strict=True):
        rate = f"{point.gflops:,.1f} GFLOP/s at {point.intensity:.1f} for each byte"
        tooltip = f"{point.number}. {point.measurement.operation}: {rate}"
        drawn.append(mark(point.device, box.x, box.y, tooltip))
        if any(number == point.number and box.overlaps(other) for number, other in numbered):
            continue
        label = _free_box(box, str(point.number), occupied)
        if label is not None:
            occupied.append(label)
            numbered.append((point.number, box))
            drawn.append(
                tag("text", str(point.number), x=label.x, y=label.y + 4, class_="tick value")
            )
    return join(drawn)


def _free_box(mark_box: _Box, text: str, occupied: Sequence[_Box]) -> _Box | None:
    """Return a place for the text near the mark that overlaps nothing; None if there is none."""
    width = text_px(text, 11) + 2
    for dx, dy in _NUMBER_OFFSETS:
        box = _Box(mark_box.x + dx, mark_box.y + dy, width, _NUMBER_PX)
        if box.is_in_chart and not any(map(box.overlaps, occupied)):
            return box
    return None


@dataclass(frozen=True, slots=True)
class _Box:
    """A rectangle by its centre."""

    x: float
    y: float
    width: float
    height: float

    @property
    def is_in_chart(self) -> bool:
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
