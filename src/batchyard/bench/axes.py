"""Logarithmic axes, marks that differ in shape as well as in colour, whiskers. Pure: numbers in, SVG out."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from batchyard.report.markup import Markup, join, px, tag

WIDTH = 1080
#: shapes and colours in turn; whoever sees no colour sees the shape
MARKS = 6


@dataclass(frozen=True, slots=True)
class LogScale:
    low: float
    high: float
    #: where they are on the page; ``start`` may be the larger one, as on an axis that points up
    start: float
    end: float

    def at(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        return self.start + (self.end - self.start) * math.log(value / self.low) / math.log(
            self.high / self.low
        )

    def ticks(self) -> list[float]:
        """1, 2, 5 of each decade; only 1 where there are more than three, and not of each where there are dozens."""
        steps = (1,) if self.high / self.low > 2000 else (1, 2, 5)
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        decades = range(first, last + 1, 1 + (last - first) // 12)
        values = [step * 10.0**decade for decade in decades for step in steps]
        return [value for value in values if self.low * 0.999 <= value <= self.high * 1.001]


def scale_of(values: Sequence[float], start: float, end: float, room: float = 1.25) -> LogScale:
    """Around the values, and never less than a factor of ten: else noise would look like news."""
    low, high = min(values) / room, max(values) * room
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
    """About how wide it will be, rather too much than too little: fonts differ."""
    return (
        sum(1.05 if unicodedata.east_asian_width(letter) in "WF" else 0.66 for letter in text)
        * font_px
    )


def fitted(text: str, room_px: float) -> str:
    """As much of it as there is room for."""
    if text_px(text) <= room_px:
        return text
    short = text
    while short and text_px(short + "…") > room_px:
        short = short[:-1]
    return short.rstrip() + "…"


def words_at(text: str, room_px: float, x: float, y: float, class_: str) -> Markup:
    """Never longer than its room; what was cut off is told to whoever points at it."""
    short = fitted(text, room_px)
    return tag(
        "text", tag("title", text) if short != text else None, short, x=x, y=y, class_=class_
    )


def mark(number: int, x: float, y: float, words: str = "", r: float = 5) -> Markup:
    """The sign of series ``number``: circle, square, diamond, each filled and then hollow."""
    shape, is_hollow = number % 3, number % 6 >= 3
    class_ = f"mark-{'hollow' if is_hollow else 'full'} c{number % MARKS}"
    title = tag("title", words) if words else None
    if shape == 0:
        return tag("circle", title, cx=x, cy=y, r=r - 0.3, class_=class_)
    if shape == 1:
        side = r * 1.75
        return tag(
            "rect", title, x=x - side / 2, y=y - side / 2, width=side, height=side, class_=class_
        )
    reach = r * 1.3
    path = f"M{px(x)} {px(y - reach)}l{px(reach)} {px(reach)}l{px(-reach)} {px(reach)}l{px(-reach)} {px(-reach)}z"
    return tag("path", title, d=path, class_=class_)


def whisker(number: int, scale: LogScale, low: float, high: float, y: float) -> Markup:
    left, right = scale.at(low), scale.at(high)
    if right - left < 1:
        return Markup()
    path = f"M{px(left)} {px(y - 3)}v6M{px(left)} {px(y)}H{px(right)}M{px(right)} {px(y - 3)}v6"
    return tag("path", d=path, class_=f"whisker c{number % MARKS}")


def legend(entries: Sequence[tuple[Markup, str]]) -> Markup:
    items = [
        tag("li", tag("svg", sign, width=18, height=12, aria_hidden="true"), words)
        for sign, words in entries
    ]
    return tag("ul", items, class_="legend")


def vertical_grid(scale: LogScale, top: float, bottom: float, words: Sequence[str]) -> Markup:
    drawn = []
    for value, text in zip(scale.ticks(), words, strict=True):
        x = scale.at(value)
        drawn.append(tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="grid"))
        drawn.append(tag("text", text, x=x, y=top - 6, class_="tick"))
    return tag("g", join(drawn), class_="axis")
