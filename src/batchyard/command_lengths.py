"""How long commands are expected to take: which goes first, and when all of them end. Pure.

A length is a number of seconds that earlier runs tell, or a weight that the pipeline file gives.
Dynamic steps hand out their longest commands first: then no long one begins when the others end.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Mapping, Sequence

from batchyard.quick_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seconds:
    """The seconds that the commands of a step are expected to take, by their numbers."""

    values: Sequence[float]
    #: commands that an earlier run has executed; the others are expected to take the mean
    known: int


@dataclass(frozen=True, slots=True)
class Expectation:
    """When the commands of a step are expected to end, counted from the first start."""

    #: commands that run at once
    slots: int
    commands: int
    #: commands that an earlier run has executed
    known: int
    expected_s: float
    #: No order could end earlier: the sum divided by the slots, or the longest command.
    lower_bound_s: float


def sort_longest_first(numbers: Iterable[int], lengths: Sequence[float]) -> array[int]:
    """Return the commands by falling length; those of equal length in the order given."""
    return array("L", sorted(numbers, key=lengths.__getitem__, reverse=True))


def lower_bound_s(lengths: Sequence[float], slots: int) -> float:
    return max(sum(lengths) / slots, max(lengths, default=0.0))


def expected_end_s(lengths: Iterable[float], slots: int) -> float:
    """Return when the last command ends if each begins, in this order, in the first free slot."""
    ends = [0.0] * slots
    for length in lengths:
        heapq.heapreplace(ends, ends[0] + length)
    return max(ends)


def expect(
    numbers: Iterable[int], lengths: Sequence[float], seconds: Seconds, slots: int
) -> Expectation:
    """Return the end of these commands, if they are handed out by falling ``lengths``."""
    order = sort_longest_first(numbers, lengths)
    values = [seconds.values[number] for number in order]
    slots = max(1, min(slots, len(values)))
    return Expectation(
        slots,
        len(values),
        seconds.known,
        expected_end_s(values, slots),
        lower_bound_s(values, slots),
    )


def fill_in(commands: Sequence[str], by_text: Mapping[str, float], mean_s: float) -> Seconds:
    """Return the seconds of the commands by their texts; unknown ones get the mean."""
    known_lengths = [by_text.get(command) for command in commands]
    return _with_mean(known_lengths, mean_s)


def fill_in_numbers(count: int, by_number: Mapping[int, float]) -> Seconds:
    """Return the seconds of a list that has not changed; unknown ones get the mean."""
    return _with_mean(
        [by_number.get(number) for number in range(count)], sum(by_number.values()) / len(by_number)
    )


def _with_mean(known_lengths: Sequence[float | None], mean_s: float) -> Seconds:
    values = array("d", [mean_s if value is None else value for value in known_lengths])
    return Seconds(values, sum(value is not None for value in known_lengths))
