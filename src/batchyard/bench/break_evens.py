"""Find the size from which the second of two devices is cheaper, or faster. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise


class Measure(Enum):
    """What is compared: (better, worse)."""

    DOLLARS = ("cheaper", "dearer")
    TIME = ("faster", "slower")

    @property
    def better(self) -> str:
        return self.value[0]

    @property
    def worse(self) -> str:
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Point:
    """One measured size of a workload."""

    size: int
    label: str
    #: how many times better the second side is
    factor: float
    #: 1: the second side is better, -1: the first, 0: neither
    winner: int


@dataclass(frozen=True, slots=True)
class BreakEven:
    """The size of a workload from which the second side is better."""

    workload: str
    title: str
    measure: Measure
    #: None if it does not lie between two measured sizes
    size: float | None
    #: the end of a sentence whose subject is the second side
    verdict: str


def find_break_even(
    workload: str, title: str, measure: Measure, points: Sequence[Point]
) -> BreakEven:
    """Return the break-even of one workload, whose points are sorted by size.

    Logarithms are interpolated linearly, since times and sizes grow by factors.
    """
    size = None
    sizes = f"{points[0].label} to {points[-1].label}"
    winners = [point.winner for point in points]
    changes = [
        pair for pair in pairwise(points) if (pair[0].winner == 1) is not (pair[1].winner == 1)
    ]
    if not any(winners):
        verdict = f"is neither {measure.better} nor {measure.worse} at any size measured, {sizes}"
    elif 1 not in winners:
        verdict = f"is not {measure.better} at any size measured, {sizes}"
    elif not changes:
        verdict = f"is {measure.better} at all sizes measured, {sizes}"
    elif len(changes) > 1:
        listing = ", ".join(_describe_change(measure, *pair) for pair in changes)
        verdict = f"has no single break-even: it {listing}"
    elif winners[0] == 1:
        verdict = f"is {measure.better} at small sizes only"
    else:
        size, verdict = _find_crossing(measure, *changes[0])
    return BreakEven(workload, title, measure, size, verdict)


def _describe_change(measure: Measure, smaller: Point, larger: Point) -> str:
    verb = "becomes" if larger.winner == 1 else "stops being"
    ends = [f"{point.label} ({point.factor:.2f}x)" for point in (smaller, larger)]
    return f"{verb} {measure.better} between {' and '.join(ends)}"


def _find_crossing(measure: Measure, smaller: Point, larger: Point) -> tuple[float | None, str]:
    """Return the break-even size between a size where the second side is not better and one where
    it is, and the end of a sentence about it.
    """
    low, high = smaller.factor, larger.factor
    factors = f"{low:.2f}x at {smaller.label}, {high:.2f}x at {larger.label}"
    if smaller.winner == 0:
        return (
            None,
            f"is {measure.better} at {larger.label}, and at {smaller.label} neither is: {factors}",
        )
    exponent = math.log(1 / low) / math.log(high / low)
    size = smaller.size * (larger.size / smaller.size) ** exponent
    return size, f"is {measure.better} from about {size:,.0f}: {factors}"
