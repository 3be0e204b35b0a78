"""Two results side by side: times, speed-up, dollars, which to pick, where one overtakes the other. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from batchyard.bench.prices import Prices
from batchyard.bench.results import STOOD_IN, Measurement, Outcome, Results, spread_of
from batchyard.bench.workload import GPU
from batchyard.errors import InputError

_PER = 1000
#: a difference that two runs on the same machine may have is none
_EVEN = 1.05
#: what is said where the times of one side differ among themselves by more than the two sides do
UNCLEAR = "unclear (spread)"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: whose numbers these are."""

    label: str
    device: str
    instance_type: str | None
    usd_h: float | None
    gpus: int
    #: what it is not, where it was measured in another's place; ends with a comma
    about: str = ""

    def dollars(self, seconds: float | None) -> float | None:
        """Of a thousand operations."""
        return None if seconds is None or self.usd_h is None else seconds * _PER / 3600 * self.usd_h


@dataclass(frozen=True, slots=True)
class Row:
    """One operation on both. ``reason``: why it cannot be compared."""

    first: Measurement
    second: Measurement
    reason: str
    first_usd: float | None
    second_usd: float | None

    @property
    def speed_up(self) -> float | None:
        """How many times faster the second is, its copies included."""
        if self.reason or not self.first.copied_s or not self.second.copied_s:
            return None
        return self.first.copied_s / self.second.copied_s

    @property
    def bare_speed_up(self) -> float | None:
        """The same without copies: what it would be if the data were there already."""
        if self.reason or not self.first.median_s or not self.second.median_s:
            return None
        return self.first.median_s / self.second.median_s

    @property
    def spread(self) -> float:
        """Of the times that are compared, the wider one's, as a part of its median."""
        return max(
            spread_of(one.with_copies_s or one.warm_s) or 0.0 for one in (self.first, self.second)
        )

    @property
    def winner(self) -> int:
        """1: the second is faster, -1: the first, 0: neither, or it cannot be told."""
        up = self.speed_up or 1.0
        if max(up, 1 / up) <= max(_EVEN, 1 + self.spread):
            return 0
        return 1 if up > 1 else -1


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Where the second begins to win, between two sizes that were measured."""

    workload: str
    title: str
    #: None where no two sizes that were measured have it between them; ``says`` why
    size: float | None
    says: str


@dataclass(frozen=True, slots=True)
class Comparison:
    first: Side
    second: Side
    rows: tuple[Row, ...]
    break_evens: tuple[BreakEven, ...]
    #: operations that only one of the two has: (side's label, operation)
    alone: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    #: one of the two stood in for a device that was not there: nothing can be concluded
    has_stand_in: bool = False

    @property
    def counted(self) -> list[Row]:
        return [row for row in self.rows if row.speed_up is not None]

    def total_s(self) -> tuple[float, float]:
        return sum(row.first.copied_s or 0 for row in self.counted), sum(
            row.second.copied_s or 0 for row in self.counted
        )

    def total_usd(self) -> tuple[float | None, float | None]:
        first_s, second_s = self.total_s()
        return self.first.dollars(first_s), self.second.dollars(second_s)

    def pick(self, row: Row) -> str:
        """The cheaper one; where a price is not known, the faster one. Nothing, where one is a stand-in."""
        if row.speed_up is None or self.has_stand_in:
            return ""
        if row.first_usd is not None and row.second_usd is not None:
            return self._better(row.first_usd, row.second_usd, row.spread, "cheaper")
        return self._better(row.first.copied_s or 0, row.second.copied_s or 0, row.spread, "faster")

    def _better(self, first: float, second: float, spread: float, word: str) -> str:
        if max(first, second) <= min(first, second) * _EVEN:
            return "either"
        if max(first, second) <= min(first, second) * (1 + spread):
            return UNCLEAR
        return f"{(self.first if first < second else self.second).label} ({word})"


def compare(
    first: Results, second: Results, prices: Prices, first_type: str = "", second_type: str = ""
) -> Comparison:
    """The CPU comes first, whichever is given first; a CPU that stands in for a GPU is in the GPU's place."""
    if _is_second(first) and not _is_second(second):
        first, second, first_type, second_type = second, first, second_type, first_type
    sides = _sides(first, second, prices, first_type, second_type)
    theirs = {one.key: one for one in second.measurements}
    mine = {one.key: one for one in first.measurements}
    common = [key for key in mine if key in theirs]
    if not common:
        raise InputError(
            f"the two have no operation in common: one has {_names(first)}, the other {_names(second)}",
            hint="measure the same workloads and sizes on both: the same --only and --sizes",
        )
    rows = tuple(_row(mine[key], theirs[key], *sides) for key in common)
    alone = [(sides[0].label, one.operation) for key, one in mine.items() if key not in theirs]
    alone += [(sides[1].label, one.operation) for key, one in theirs.items() if key not in mine]
    has_stand_in = bool(first.stands_for or second.stands_for)
    evens = () if has_stand_in else tuple(_break_evens(rows))
    return Comparison(
        *sides, rows, evens, tuple(alone), tuple(_notes(first, second, sides)), has_stand_in
    )


def _is_second(results: Results) -> bool:
    return GPU in (results.device, results.stands_for)


def _sides(
    first: Results, second: Results, prices: Prices, first_type: str, second_type: str
) -> tuple[Side, Side]:
    labels = ["stand-in" if one.stands_for else one.device.upper() for one in (first, second)]
    if labels[0] == labels[1]:
        labels = [f"{label} {letter}" for label, letter in zip(labels, "AB", strict=True)]
    sides = []
    for label, results, given in zip(
        labels, (first, second), (first_type, second_type), strict=True
    ):
        # What stands in costs nothing that the other would.
        name = None if results.stands_for else given or results.instance_type
        about = f"{results.kind}, " if results.stands_for else ""
        sides.append(
            Side(
                label, results.device, name, prices.of(name), prices.gpus.get(name or "", 0), about
            )
        )
    return sides[0], sides[1]


def _row(mine: Measurement, theirs: Measurement, first: Side, second: Side) -> Row:
    reason = ""
    for one, side in ((mine, first), (theirs, second)):
        if one.outcome is not Outcome.OK:
            reason = f"{side.label} {one.outcome.value}: {one.reason}"
    if not reason and mine.inputs_crc != theirs.inputs_crc:
        reason = "not the same inputs"
    usd = (
        (None, None) if reason else (first.dollars(mine.copied_s), second.dollars(theirs.copied_s))
    )
    return Row(mine, theirs, reason, *usd)


def _names(results: Results) -> str:
    return (
        ", ".join(dict.fromkeys(f"{one.workload} {one.size}" for one in results.measurements))
        or "nothing"
    )


def _notes(first: Results, second: Results, sides: tuple[Side, Side]) -> list[str]:
    notes = []
    for results, side in zip((first, second), sides, strict=True):
        if not results.ended:
            notes.append(f"{side.label} was interrupted: only what was measured until then is here")
        if side.instance_type is None:
            notes.append(f"{side.label}: the instance type is not known, so its price is ?")
        elif side.usd_h is None:
            notes.append(
                f"{side.label}: no price is known for {side.instance_type}, so it is ?; give --price TYPE=USD"
            )
        if side.device == GPU and side.gpus > 1:
            notes.append(
                f"{side.label}: one of {side.gpus} GPUs was used, and the whole instance is paid"
            )
    if first.stands_for or second.stands_for:
        notes.append(STOOD_IN)
    elif first.device == second.device:
        notes.append(f"both are {first.device.upper()} results: this is no comparison with a GPU")
    if first.is_quick or second.is_quick:
        notes.append("measured with --quick: fit to see that it works, not to decide by")
    return notes


# -- break-even -------------------------------------------------------------------------------------------------


def _break_evens(rows: Sequence[Row]) -> list[BreakEven]:
    found = []
    for workload in dict.fromkeys(row.first.workload for row in rows):
        points = [
            row for row in rows if row.first.workload == workload and row.speed_up is not None
        ]
        points.sort(key=lambda row: row.first.size)
        if len(points) > 1:
            found.append(break_even(points))
    return found


def break_even(points: Sequence[Row]) -> BreakEven:
    """Straight lines between the points, of logarithms: times and sizes grow by factors."""
    size = None
    sizes = f"{points[0].first.label} to {points[-1].first.label}"
    winners = [row.winner for row in points]
    changes = [
        pair for pair in pairwise(points) if (pair[0].winner == 1) is not (pair[1].winner == 1)
    ]
    if not any(winners):
        says = f"neither wins nor loses at any size measured, {sizes}"
    elif 1 not in winners:
        says = f"does not win at any size measured, {sizes}"
    elif not changes:
        says = f"wins at all sizes measured, {sizes}"
    elif len(changes) > 1:
        says = f"has no single break-even: it {', '.join(_change(*pair) for pair in changes)}"
    elif winners[0] == 1:
        # Nothing smaller was measured, so nothing is said about it.
        says = "wins at small sizes only"
    else:
        size, says = _crossing(*changes[0])
    return BreakEven(points[0].first.workload, points[0].first.title, size, says)


def _change(before: Row, after: Row) -> str:
    does = "begins to win" if after.winner == 1 else "stops winning"
    ends = [f"{row.first.label} ({row.speed_up or 1.0:.2f}x)" for row in (before, after)]
    return f"{does} between {' and '.join(ends)}"


def _crossing(before: Row, after: Row) -> tuple[float | None, str]:
    """Between a size at which the second does not win, and the next, at which it does."""
    low, high = before.speed_up or 1.0, after.speed_up or 1.0
    shown = f"{low:.2f}x at {before.first.label}, {high:.2f}x at {after.first.label}"
    if before.winner == 0:
        return (
            None,
            f"wins at {after.first.label}, and at {before.first.label} neither does: {shown}",
        )
    part = math.log(1 / low) / math.log(high / low)
    size = before.first.size * (after.first.size / before.first.size) ** part
    return size, f"from about {size:,.0f}: {shown}"
