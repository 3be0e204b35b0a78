"""Draw the lanes of slots and hosts as SVG. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from batchyard.report import layout
from batchyard.report.amounts import format_share
from batchyard.report.axis import AXIS_PX, Scale, draw_axis
from batchyard.report.host_lanes import COLUMNS, LEVELS, MAX_LANES, Lane
from batchyard.report.markup import Markup, join, px, tag
from batchyard.units import pluralize

_HOST_PX = 13
_HOST_GAP_PX = 7
#: (largest number of lanes, height of the lane of a slot)
_SLOT_PX = ((8, 7.0), (16, 5.0), (MAX_LANES, 3.0))
_LEGEND = (("track", "nothing ran"), ("l2 c6", "half busy"), (f"l{LEVELS} c6", "busy"))


def draw_slots(slots: Sequence[Lane], scale: Scale, top: float) -> tuple[Markup, float]:
    """Return thin lanes of the slots of one step from ``top`` on, and their height."""
    lane_px = next(height for most, height in _SLOT_PX if len(slots) <= most)
    pitch = lane_px + 1
    drawings = [
        _draw_lane(lane, scale, top + row * pitch, lane_px) for row, lane in enumerate(slots)
    ]
    return tag("g", drawings, class_="lanes"), len(slots) * pitch


def draw_hosts(
    hosts: Sequence[Lane], begin_ms: int, end_ms: int, colours: int, *, is_open: bool
) -> Markup:
    """Return the chart of the hosts of a run with its legend; steps use ``colours`` in turn."""
    layouts = (layout.wide(lane.name for lane in hosts), layout.narrow())
    charts = [
        _draw_chart(hosts, Scale(begin_ms, end_ms, one_layout), colours, is_open)
        for one_layout in layouts
    ]
    return join((tag("div", charts, class_="scroll"), draw_legend()))


def draw_legend() -> Markup:
    """Return the meaning of the degrees of a lane."""
    items = []
    for css_class, text in _LEGEND:
        box = tag("rect", x=0, y=1, width=18, height=9, class_=css_class)
        sign = tag("svg", box, width=18, height=11, aria_hidden="true", class_="lanes")
        items.append(tag("li", sign, text))
    return tag("ul", items, class_="legend")


def _draw_chart(hosts: Sequence[Lane], scale: Scale, colours: int, is_open: bool) -> Markup:
    top = float(AXIS_PX)
    rows = []
    for lane in hosts:
        top += scale.layout.name_line
        rows.append(scale.layout.draw_name(lane.name, top + 10, top))
        rows.append(_draw_lane(lane, scale, top, _HOST_PX, colours))
        top += _HOST_PX + _HOST_GAP_PX
    return tag(
        "svg",
        tag("title", "When each host was busy"),
        tag("desc", "; ".join(map(_describe, hosts)) + "."),
        draw_axis(scale, top, is_open=is_open),
        tag("g", rows, class_="lanes"),
        viewBox=f"0 0 {px(scale.layout.width)} {px(top)}",
        role="img",
        class_=scale.layout.css_class,
    )


def _draw_lane(
    lane: Lane, scale: Scale, top: float, height: float, colours: int | None = None
) -> Markup:
    """Return the track of a lane and its busy parts. ``colours``: None for one colour."""
    begin = scale.x(scale.begin_ms if lane.begin_ms is None else lane.begin_ms)
    end = scale.x(scale.end_ms if lane.end_ms is None else lane.end_ms)
    track = tag("rect", x=begin, y=top, width=max(1.0, end - begin), height=height, class_="track")
    column_px = scale.width / COLUMNS
    shapes: dict[str, list[str]] = {}
    for part in lane.segments:
        x, width = scale.left_px + part.first * column_px, (part.stop - part.first) * column_px
        css_class = f"l{part.level}" + ("" if colours is None else f" c{part.step % colours}")
        path = f"M{px(x)} {px(top)}h{px(width)}v{px(height)}h-{px(width)}z"
        shapes.setdefault(css_class, []).append(path)
    paths = [tag("path", d="".join(parts), class_=name) for name, parts in shapes.items()]
    return tag("g", tag("title", _describe(lane)), track, paths)


def _describe(lane: Lane) -> str:
    peak = f", at most {lane.peak:,} at once" if lane.peak > 1 else ""
    count = pluralize(lane.attempts, "attempt")
    return f"{lane.name}: {count}{peak}, busy {format_share(lane.busy)} of the time"
