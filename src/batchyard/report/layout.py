"""Where the parts of a chart are, on a wide and on a narrow screen. Pure.

A chart that is scaled down to a phone cannot be read, so each chart is drawn twice, and the style
sheet shows the one that fits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from batchyard.report.markup import Markup, tag

#: The least distance between the labels of two ticks.
_TICK_GAP_PX = 46.0
#: The characters of a name that fit, and those of them that are the end of a longer name.
_MAX_NAME = 31
_NAME_END = 11


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of a chart in pixels."""

    width: float
    #: margins at the left and right of the axis
    left: float
    right: float
    #: height of the line above each step with its name; 0 if names are in the left margin
    name_line: float
    #: bars that are drawn one by one
    max_bars: int
    css_class: str

    @property
    def axis_width(self) -> float:
        return self.width - self.left - self.right

    @property
    def max_ticks(self) -> int:
        return min(10, int(self.axis_width / (2 * _TICK_GAP_PX)) + 1)

    def draw_name(self, name: str, beside_y: float, top: float) -> Markup:
        """Return the name of a step or host; of a long one, its begin and its end.

        ``beside_y``: its y if it is beside the drawing; ``top``: upper edge of the drawing.
        """
        title, text = None, name
        if len(name) > _MAX_NAME:
            title = tag("title", name)
            text = f"{name[: _MAX_NAME - _NAME_END - 1]}\N{HORIZONTAL ELLIPSIS}{name[-_NAME_END:]}"
        if self.name_line:
            return tag("text", title, text, x=0, y=top - 5, class_="name above")
        return tag("text", title, text, x=self.left - 12, y=beside_y, class_="name")

    def note_y(self, beside_y: float, top: float) -> float:
        """Return the y of a text at the right end of a step's row."""
        return top - 5 if self.name_line else beside_y

    def drop_crowded(self, ticks: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
        """Return the ticks, pairs of value and x, without those too near to the one before."""
        spaced: list[tuple[float, float]] = []
        for value, x in ticks:
            if not spaced or x - spaced[-1][1] >= _TICK_GAP_PX:
                spaced.append((value, x))
        return spaced


def wide(names: Iterable[str]) -> Layout:
    """Return the layout of a page on a desk, with the names of the steps beside their drawings."""
    left = min(240.0, max(70.0, 18 + 7.0 * max(map(len, names), default=0)))
    return Layout(1080, left, 84, 0, 2000, "chart wide")


def narrow() -> Layout:
    """Return the layout of a page on a phone, with the names of the steps above their drawings."""
    return Layout(360, 16, 16, 20, 400, "chart narrow")
