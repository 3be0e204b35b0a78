"""Time calls: how many repetitions are enough, and several candidates in turns.

The clock is a parameter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeAlias

Clock: TypeAlias = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Effort:
    """How long and how often a finalist is measured."""

    #: times of a finalist: warm calls, or groups of short ones
    min_calls: int
    max_calls: int
    #: seconds of measured time per finalist after which no further round starts
    budget_s: float
    #: seconds of measured time per finalist at least: short calls are timed in groups
    min_total_s: float = 0.0
    #: a finalist took at most this many times the time of the fastest candidate in its trial
    finalist_factor: float = 1.25
    #: a candidate beyond this factor is not tried at larger sizes
    hopeless_factor: float = 2.5


FULL = Effort(min_calls=5, max_calls=60, budget_s=4.0, min_total_s=0.6)
QUICK = Effort(min_calls=3, max_calls=15, budget_s=0.25, min_total_s=0.03)
#: calls of at least this duration are measured only three times
_LONG_S = 3.0
_MIN_LONG_CALLS = 3
#: duration of the consecutive calls of one finalist before the next finalist has its turn
_TURN_S = 0.06


@dataclass(slots=True)
class Stopwatch:
    """Times calls and adds up the time spent in them."""

    clock: Clock
    spent_s: float = 0.0
    #: called before each timed call; may raise KeyboardInterrupt
    before_call: Callable[[], None] = lambda: None

    def time(self, call: Callable[[], Any]) -> tuple[float, Any]:
        """Return the duration of ``call`` in seconds, and its result."""
        self.before_call()
        begin_s = self.clock()
        try:
            result = call()
        finally:
            duration_s = self.clock() - begin_s
            self.spent_s += duration_s
        return duration_s, result


@dataclass(slots=True)
class Finalist:
    """A candidate that is measured thoroughly: its synchronised call, and the measured times."""

    call: Callable[[], Any]
    #: duration of a call in the trial; decides how many calls a turn has
    expected_s: float
    times_s: list[float] = field(default_factory=list)


def group_size(expected_s: float, effort: Effort) -> int:
    """Return how many calls are timed together, so that all times last ``min_total_s``.

    Sixty calls of some microseconds would measure the clock and the scheduler, not the calls.
    """
    return max(1, math.ceil(effort.min_total_s / effort.max_calls / max(expected_s, 1e-7)))


def time_group(call: Callable[[], Any], count: int, stopwatch: Stopwatch) -> float:
    """Return the mean duration of ``count`` calls in a row, in seconds."""

    def call_all() -> None:
        for _ in range(count):
            # The result is dropped at once, so that the next call can reuse its memory.
            call()

    return stopwatch.time(call_all)[0] / count


def is_close(seconds: float, best_s: float, effort: Effort) -> bool:
    """Whether a candidate is fast enough to be a finalist."""
    return seconds <= best_s * effort.finalist_factor


def is_hopeless(seconds: float, best_s: float, effort: Effort) -> bool:
    """Whether a candidate is too slow to be tried at a larger size."""
    return seconds > best_s * effort.hopeless_factor


def is_enough(times_s: Sequence[float], spent_s: float, effort: Effort) -> bool:
    """Whether a finalist with these warm times needs no further call."""
    if len(times_s) >= effort.max_calls:
        return True
    min_calls = effort.min_calls
    if times_s and median(times_s) >= _LONG_S:
        min_calls = min(min_calls, _MIN_LONG_CALLS)
    return len(times_s) >= min_calls and spent_s >= effort.budget_s


def time_in_turns(finalists: Sequence[Finalist], effort: Effort, stopwatch: Stopwatch) -> None:
    """Fill in the times of each finalist.

    Finalists alternate, so that other load on the machine disturbs all of them alike.
    """
    spent_s = [0.0] * len(finalists)
    while True:
        unfinished = [
            number
            for number, finalist in enumerate(finalists)
            if not is_enough(finalist.times_s, spent_s[number], effort)
        ]
        if not unfinished:
            return
        for number in unfinished:
            finalist = finalists[number]
            start_s = stopwatch.spent_s
            if len(finalists) > 1 and finalist.expected_s < _TURN_S:
                # Threads of another library may still be spinning, and the caches hold its data:
                # this call is not counted.
                stopwatch.time(finalist.call)
            group = group_size(finalist.expected_s, effort)
            groups = max(1, math.ceil(_TURN_S / max(finalist.expected_s * group, 1e-7)))
            for _ in range(min(groups, effort.max_calls - len(finalist.times_s))):
                finalist.times_s.append(time_group(finalist.call, group, stopwatch))
            spent_s[number] += stopwatch.spent_s - start_s
