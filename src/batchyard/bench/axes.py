"""Draw the parts of charts as SVG: logarithmic axes, marks, whiskers, legends. Pure."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from batchyard.report.markup import Markup, join, px, tag

WIDTH = 1080
#: number of marks that differ in colour; they differ in shape too, for readers who see no colour
MARKS = 6


@dataclass(frozen=True, slots=True)
class LogScale:
    """Maps values from ``low`` to ``high`` to pixels from ``start`` to ``end``."""

    low: float
    high: float
    #: larger than ``end`` on an axis that points up
    start: float
    end: float

    def at(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        return self.start + (self.end - self.start) * math.log(value / self.low) / math.log(
            self.high / self.low
        )

    def ticks(self) -> list[float]:
        """Return 1, 2 and 5 of each decade; over more than three decades only 1.

        Over dozens of decades, some of them have no tick.
        """
        steps = (1,) if self.high / self.low > 2000 else (1, 2, 5)
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        decades = range(first, last + 1, 1 + (last - first) // 12)
        values = [step * 10.0**decade for decade in decades for step in steps]
        return [value for value in values if self.low * 0.999 <= value <= self.high * 1.001]


def scale_of(values: Sequence[float], start: float, end: float, margin: float = 1.25) -> LogScale:
    """Return a scale around the values, with a factor ``margin`` on both sides.

    It spans at least a factor of ten, so that noise does not look like a difference.
    """
    low, high = min(values) / margin, max(values) * margin
    widen = max(1.0, math.sqrt(10 / (high / low)))
    return LogScale(low / widen, high * widen, start, end)


def time_tick(seconds: float) -> str:
    for factor, unit in ((1e9, "ns"), (1e6, "µs"), (1e3, "ms")):
        if seconds * factor < 999:
            return f"{seconds * factor:g} {unit}"
    return f"{seconds:g} s"


def plain_tick(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def text_px(text: str, font_px: float = 12) -> float:
    """Return an upper estimate of the width of a text; fonts differ."""
    return (
        sum(1.05 if unicodedata.east_asian_width(letter) in "WF" else 0.66 for letter in text)
        * font_px
    )


def shorten_to_width(text: str, width_px: float) -> str:
    """Return the text, cut and ended with an ellipsis if it is wider than ``width_px``."""
    if text_px(text) <= width_px:
        return text
    short = text
    while short and text_px(short + "…") > width_px:
        short = short[:-1]
    return short.rstrip() + "…"


def text_at(text: str, width_px: float, x: float, y: float, class_: str) -> Markup:
    """Draw a text of limited width; a text that is cut has the whole text as its tooltip."""
    short = shorten_to_width(text, width_px)
    return tag(
        "text", tag("title", text) if short != text else None, short, x=x, y=y, class_=class_
    )


def mark(number: int, x: float, y: float, tooltip: str = "", r: float = 5) -> Markup:
    """Draw the mark of series ``number``: circle, square, diamond, first filled, then hollow."""
    shape, is_hollow = number % 3, number % 6 >= 3
    class_ = f"mark-{'hollow' if is_hollow else 'full'} c{number % MARKS}"
    title = tag("title", tooltip) if tooltip else None
    if shape == 0:
        return tag("circle", title, cx=x, cy=y, r=r - 0.3, class_=class_)
    if shape == 1:
        side = r * 1.75
        return tag(
            "rect", title, x=x - side / 2, y=y - side / 2, width=side, height=side, class_=class_
        )
    reach = r * 1.3
    sides = ((reach, reach), (-reach, reach), (-reach, -reach))
    path = f"M{px(x)} {px(y - reach)}" + "".join(f"l{px(dx)} {px(dy)}" for dx, dy in sides) + "z"
    return tag("path", title, d=path, class_=class_)


def whisker(number: int, scale: LogScale, low: float, high: float, y: float) -> Markup:
    """Draw a line from ``low`` to ``high`` with caps; nothing if it would be shorter than 1 px."""
    x1, x2 = scale.at(low), scale.at(high)
    if x2 - x1 < 1:
        return Markup()
    path = f"M{px(x1)} {px(y - 3)}v6M{px(x1)} {px(y)}H{px(x2)}M{px(x2)} {px(y - 3)}v6"
    return tag("path", d=path, class_=f"whisker c{number % MARKS}")


def legend(entries: Sequence[tuple[Markup, str]]) -> Markup:
    items = [
        tag("li", tag("svg", sign, width=18, height=12, aria_hidden="true"), label)
        for sign, label in entries
    ]
    return tag("ul", items, class_="legend")


def vertical_grid(scale: LogScale, top: float, bottom: float, labels: Sequence[str]) -> Markup:
    """Draw a vertical line with a label for each tick of the scale."""
    drawn = []
    for value, text in zip(scale.ticks(), labels, strict=True):
        x = scale.at(value)
        drawn.append(tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="grid"))
        drawn.append(tag("text", text, x=x, y=top - 6, class_="tick"))
    return tag("g", join(drawn), class_="axis")
