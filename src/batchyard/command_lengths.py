"""How long commands are expected to take: which goes first, and when all of them end. Pure.

A length is a number of seconds that earlier runs tell, or a weight that the pipeline file gives.
Dynamic steps hand out their longest commands first: then no long one begins when the others end.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from batchyard.quick_dataclasses import dataclass

#: Commands that are sorted at once: Python needs 80 bytes for each while it sorts.
_SORTED_COMMANDS = 100_000


class KnownSeconds:
    """The seconds that commands of a list took, by their numbers: 8 bytes for each command."""

    def __init__(self, size: int, durations: Iterable[tuple[int, float]] = ()) -> None:
        """``size``: commands of the list. ``durations``: numbers of commands with their seconds."""
        #: NaN for a command whose seconds are not known
        self._values = array("d", [math.nan]) * size
        #: commands whose seconds are known
        self.count = 0
        self._total_s = 0.0
        for number, seconds in durations:
            self._add(number, seconds)

    def _add(self, number: int, seconds: float) -> None:
        if number >= len(self._values):
            return  # A child that `scale` has added has no command of its own.
        if math.isnan(self._values[number]):
            self.count += 1
            self._total_s += seconds
        self._values[number] = seconds

    @property
    def mean_s(self) -> float:
        return self._total_s / self.count

    def items(self) -> Iterator[tuple[int, float]]:
        """Yield the number of each known command with its seconds."""
        for number, seconds in enumerate(self._values):
            if not math.isnan(seconds):
                yield number, seconds

    def fill_in(self) -> Seconds:
        """Return the seconds of all commands; unknown ones get the mean."""
        mean_s = self.mean_s
        values = array("d", (mean_s if math.isnan(value) else value for value in self._values))
        return Seconds(values, self.count)


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


def sort_longest_first(
    numbers: Iterable[int], lengths: Sequence[float], at_once: int = _SORTED_COMMANDS
) -> array[int]:
    """Return the commands by falling length; those of equal length in the order given.

    ``at_once``: commands that are sorted at once; sorted parts are merged.
    """
    remaining, length_of = iter(numbers), lengths.__getitem__
    parts = []
    while part := sorted(islice(remaining, at_once), key=length_of, reverse=True):
        parts.append(array("L", part))
    if len(parts) == 1:
        return parts[0]
    # Of equal ones, those of the earlier part are first.
    return array("L", heapq.merge(*parts, key=length_of, reverse=True))


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
    values = array("d", map(seconds.values.__getitem__, order))
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
    values = array("d", (by_text.get(command, mean_s) for command in commands))
    return Seconds(values, sum(command in by_text for command in commands))
