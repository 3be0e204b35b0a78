"""The time axis of charts: from a time to its x coordinate, and the ticks. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from batchyard.report.amounts import format_tick, linear_ticks
from batchyard.report.layout import Layout
from batchyard.report.markup import Markup, tag

#: Height of the axis, above the drawings.
AXIS_PX = 26


@dataclass(frozen=True, slots=True)
class Scale:
    """The time axis of one chart."""

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


def draw_axis(scale: Scale, height: float, *, is_open: bool = False) -> Markup:
    """Return the axis, whose lines end at ``height``; a line marks the end of an open time."""
    span_ms = scale.end_ms - scale.begin_ms
    shapes = []
    for seconds in linear_ticks(span_ms / 1000, scale.layout.max_ticks):
        x = scale.x(scale.begin_ms + seconds * 1000)
        shapes.append(tag("line", x1=x, x2=x, y1=AXIS_PX - 8, y2=height, class_="grid"))
        shapes.append(tag("text", format_tick(seconds), x=x, y=AXIS_PX - 13, class_="tick"))
    if is_open:
        x = scale.x(scale.end_ms)
        shapes.append(tag("line", x1=x, x2=x, y1=AXIS_PX - 8, y2=height, class_="now"))
    return tag("g", shapes, class_="axis")
