"""Compare two results: times, speed-up, dollars, which to pick, break-even sizes. Pure.

The pick of a row and the break-even of a workload come from the same factor, so they agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batchyard.bench.break_evens import BreakEven, Measure, Point, find_break_even
from batchyard.bench.results import STAND_IN_NOTE, Measurement, Outcome, Results, spread_of
from batchyard.bench.workload import GPU
from batchyard.ec2_prices import Prices
from batchyard.ec2_types import TYPES
from batchyard.errors import InputError

#: dollars are given per this many operations
_OPERATIONS = 1000
#: a smaller factor does not count: two runs on the same machine may differ as much
_EVEN = 1.05
#: pick if the times of one side vary by more than the two sides differ
UNCLEAR = "unclear (spread)"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two compared devices."""

    label: str
    device: str
    instance_type: str | None
    usd_h: float | None
    gpus: int
    #: note about a stand-in, which ends with a comma; empty for any other device
    about: str = ""

    def dollars(self, seconds: float | None) -> float | None:
        """Return the price of a thousand operations; None if unknown."""
        return (
            None
            if seconds is None or self.usd_h is None
            else seconds * _OPERATIONS / 3600 * self.usd_h
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One operation on both sides. ``reason``: why it cannot be compared; empty if it can."""

    first: Measurement
    second: Measurement
    reason: str
    first_usd: float | None
    second_usd: float | None

    @property
    def speed_up(self) -> float | None:
        """How many times faster the second side is, copies included; None if not comparable."""
        if (
            self.reason
            or not self.first.median_with_copies_s
            or not self.second.median_with_copies_s
        ):
            return None
        return self.first.median_with_copies_s / self.second.median_with_copies_s

    @property
    def bare_speed_up(self) -> float | None:
        """How many times faster the second side is without copies; None if not comparable."""
        if self.reason or not self.first.median_s or not self.second.median_s:
            return None
        return self.first.median_s / self.second.median_s

    @property
    def spread(self) -> float:
        """The larger of the spreads of the compared times, as a fraction of the median."""
        return max(
            spread_of(measurement.with_copies_s or measurement.warm_s) or 0.0
            for measurement in (self.first, self.second)
        )

    @property
    def saving(self) -> float | None:
        """How many times cheaper the second side is, copies included; None if unknown."""
        if self.first_usd is None or self.second_usd is None:
            return None
        if not self.second_usd:
            return math.inf if self.first_usd else 1.0
        return self.first_usd / self.second_usd

    def factor(self, measure: Measure) -> float | None:
        """How many times better the second side is, in dollars or in time; None if unknown."""
        return self.saving if measure is Measure.DOLLARS else self.speed_up

    def winner(self, measure: Measure) -> int:
        """1: the second side is better, -1: the first, 0: neither, or the spread is too large."""
        factor = self.factor(measure)
        if factor is None or _difference(factor) <= max(_EVEN, 1 + self.spread):
            return 0
        return 1 if factor > 1 else -1


def _difference(factor: float) -> float:
    """Return by which factor two sides differ, whichever is better."""
    return max(factor, 1 / factor) if factor else math.inf


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two results, operation by operation."""

    first: Side
    second: Side
    rows: tuple[Row, ...]
    break_evens: tuple[BreakEven, ...]
    #: operations that only one side has: (label of the side, operation)
    one_sided: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    #: one side is a stand-in, so that nothing can be concluded
    has_stand_in: bool = False

    @property
    def comparable_rows(self) -> list[Row]:
        return [row for row in self.rows if row.speed_up is not None]

    def total_s(self) -> tuple[float, float]:
        """Return the total times of both sides in seconds."""
        rows = self.comparable_rows
        first_s = sum(row.first.median_with_copies_s or 0 for row in rows)
        second_s = sum(row.second.median_with_copies_s or 0 for row in rows)
        return first_s, second_s

    def total_usd(self) -> tuple[float | None, float | None]:
        first_s, second_s = self.total_s()
        return self.first.dollars(first_s), self.second.dollars(second_s)

    def pick(self, row: Row) -> str:
        """Return the cheaper side, or the faster one if a price is unknown.

        Empty if the row cannot be compared, or if one side is a stand-in.
        """
        if row.speed_up is None or self.has_stand_in:
            return ""
        measure = Measure.TIME if row.saving is None else Measure.DOLLARS
        if _difference(row.factor(measure) or 0.0) <= _EVEN:
            return "either"
        winner = row.winner(measure)
        if not winner:
            return UNCLEAR
        return f"{(self.second if winner > 0 else self.first).label} ({measure.better})"


def compare(
    first: Results, second: Results, prices: Prices, first_type: str = "", second_type: str = ""
) -> Comparison:
    """Return the comparison of two results, with the CPU first and the GPU or its stand-in second.

    ``first_type``, ``second_type``: instance types that replace the recorded ones. Raises
    InputError if the results have no operation in common.
    """
    if _is_second(first) and not _is_second(second):
        first, second, first_type, second_type = second, first, second_type, first_type
    sides = _sides(first, second, prices, first_type, second_type)
    first_by_key = {measurement.key: measurement for measurement in first.measurements}
    second_by_key = {measurement.key: measurement for measurement in second.measurements}
    rows = tuple(
        _row(measurement, second_by_key[key], *sides)
        for key, measurement in first_by_key.items()
        if key in second_by_key
    )
    if not rows:
        raise InputError(
            "the two have no operation in common:"
            f" one has {_names(first)}, the other {_names(second)}",
            hint="measure the same workloads and sizes on both: the same --only and --sizes",
        )
    has_stand_in = bool(first.stands_for or second.stands_for)
    return Comparison(
        *sides,
        rows,
        break_evens=() if has_stand_in else tuple(_break_evens(rows)),
        one_sided=(
            *_one_sided(sides[0], first_by_key, second_by_key),
            *_one_sided(sides[1], second_by_key, first_by_key),
        ),
        notes=tuple(_notes(first, second, sides)),
        has_stand_in=has_stand_in,
    )


def _one_sided(
    side: Side,
    measurements: Mapping[tuple[str, int], Measurement],
    others_by_key: Mapping[tuple[str, int], Measurement],
) -> list[tuple[str, str]]:
    """Return the label and the operations of a side that the other side does not have."""
    return [
        (side.label, measurement.operation)
        for key, measurement in measurements.items()
        if key not in others_by_key
    ]


def _is_second(results: Results) -> bool:
    return GPU in (results.device, results.stands_for)


def _sides(
    first: Results, second: Results, prices: Prices, first_type: str, second_type: str
) -> tuple[Side, Side]:
    labels = [
        "stand-in" if results.stands_for else results.device.upper() for results in (first, second)
    ]
    if labels[0] == labels[1]:
        labels = [f"{label} {letter}" for label, letter in zip(labels, "AB", strict=True)]
    sides = []
    for label, results, user_type in zip(
        labels, (first, second), (first_type, second_type), strict=True
    ):
        # The price of a stand-in would say nothing about the other device.
        name = None if results.stands_for else user_type or results.instance_type
        about = f"{results.kind}, " if results.stands_for else ""
        gpus = TYPES[name].gpus if name in TYPES else 0
        sides.append(Side(label, results.device, name, prices.of(name), gpus, about))
    return sides[0], sides[1]


def _row(first: Measurement, second: Measurement, first_side: Side, second_side: Side) -> Row:
    reason = ""
    for measurement, side in ((first, first_side), (second, second_side)):
        if measurement.outcome is not Outcome.OK:
            reason = f"{side.label} {measurement.outcome.value}: {measurement.reason}"
    if not reason and first.inputs_crc != second.inputs_crc:
        reason = "not the same inputs"
    if reason:
        return Row(first, second, reason, None, None)
    return Row(
        first,
        second,
        "",
        first_side.dollars(first.median_with_copies_s),
        second_side.dollars(second.median_with_copies_s),
    )


def _names(results: Results) -> str:
    names = [f"{measurement.workload} {measurement.size}" for measurement in results.measurements]
    return ", ".join(dict.fromkeys(names)) or "nothing"


def _notes(first: Results, second: Results, sides: tuple[Side, Side]) -> list[str]:
    notes = [*_side_notes(first, sides[0]), *_side_notes(second, sides[1])]
    if first.stands_for or second.stands_for:
        notes.append(STAND_IN_NOTE)
    elif first.device == second.device:
        notes.append(f"both are {first.device.upper()} results: this is no comparison with a GPU")
    if first.is_quick or second.is_quick:
        notes.append("measured with --quick: fit to see that it works, not to decide by")
    return notes


def _side_notes(results: Results, side: Side) -> list[str]:
    notes = []
    if not results.ended:
        notes.append(f"{side.label} was interrupted: only what was measured until then is here")
    if side.instance_type is None:
        notes.append(f"{side.label}: the instance type is not known, so its price is ?")
    elif side.usd_h is None:
        notes.append(
            f"{side.label}: no price is known for {side.instance_type}, so it is ?;"
            " give --price TYPE=USD"
        )
    if side.device == GPU and side.gpus > 1:
        notes.append(
            f"{side.label}: one of {side.gpus} GPUs was used, and the whole instance is paid"
        )
    return notes


# -- break-even --


def _break_evens(rows: Sequence[Row]) -> list[BreakEven]:
    """Return the break-evens of each workload: in dollars if the prices are known, and in time."""
    by_workload: dict[str, list[Row]] = {}
    for row in rows:
        if row.speed_up is not None:
            by_workload.setdefault(row.first.workload, []).append(row)
    break_evens = []
    for workload, points in by_workload.items():
        points.sort(key=lambda row: row.first.size)
        for measure in Measure:
            factors = [row.factor(measure) for row in points]
            if len(points) > 1 and None not in factors:
                break_evens.append(
                    find_break_even(
                        workload,
                        points[0].first.title,
                        measure,
                        [
                            Point(
                                row.first.size, row.first.label, factor or 0.0, row.winner(measure)
                            )
                            for row, factor in zip(points, factors, strict=True)
                        ],
                    )
                )
    return break_evens
