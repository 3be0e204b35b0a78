"""How a call is timed: cold, then warm in turns with the others, until there is enough. The clock is a parameter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeAlias

Clock: TypeAlias = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is enough."""

    #: warm calls of a finalist: no fewer, however long they take; no more, however short
    least: int
    most: int
    #: after so long no further round begins, for each finalist
    budget_s: float
    #: a candidate that took more than this times the best's time in the trial is no finalist
    close: float = 1.25
    #: and one that was beyond this at a smaller size is not tried at the next
    hopeless: float = 2.5


FULL = Effort(least=5, most=60, budget_s=4.0)
QUICK = Effort(least=3, most=15, budget_s=0.25)
#: with calls as long as this, three say enough
_LONG_S = 3.0
#: consecutive calls of one finalist take about this long before it is the next one's turn
_TURN_S = 0.06


@dataclass(slots=True)
class Stopwatch:
    """Times calls, and sums up what was spent in them."""

    clock: Clock
    spent_s: float = 0.0
    #: called before each timed call; may raise KeyboardInterrupt
    before_call: Callable[[], None] = lambda: None

    def time(self, call: Callable[[], Any]) -> tuple[float, Any]:
        self.before_call()
        begin = self.clock()
        try:
            result = call()
        finally:
            took = self.clock() - begin
            self.spent_s += took
        return took, result


@dataclass(slots=True)
class Runner:
    """A finalist: its call, synchronised, and the times that it took."""

    call: Callable[[], Any]
    #: from the trial; decides how many calls a turn has
    expected_s: float
    times_s: list[float] = field(default_factory=list)

    @property
    def turn(self) -> int:
        return max(1, math.ceil(_TURN_S / max(self.expected_s, 1e-7)))


def is_close(seconds: float, best_s: float, effort: Effort) -> bool:
    return seconds <= best_s * effort.close


def is_hopeless(seconds: float, best_s: float, effort: Effort) -> bool:
    return seconds > best_s * effort.hopeless


def enough(times_s: Sequence[float], spent_s: float, effort: Effort) -> bool:
    if len(times_s) >= effort.most:
        return True
    least = effort.least if not times_s or median(times_s) < _LONG_S else min(effort.least, 3)
    return len(times_s) >= least and spent_s >= effort.budget_s


def in_turns(runners: Sequence[Runner], effort: Effort, stopwatch: Stopwatch) -> None:
    """Fills in the times of each. What else the machine does meanwhile then disturbs all of them alike."""
    spent = [0.0] * len(runners)
    while True:
        waiting = [
            n for n, runner in enumerate(runners) if not enough(runner.times_s, spent[n], effort)
        ]
        if not waiting:
            return
        for number in waiting:
            runner = runners[number]
            before = stopwatch.spent_s
            if len(runners) > 1 and runner.expected_s < _TURN_S:
                # Another library's threads may still be spinning, and the caches are full of its data.
                stopwatch.time(runner.call)
            for _ in range(min(runner.turn, effort.most - len(runner.times_s))):
                # The result must not be kept: its memory is what the next call reuses.
                runner.times_s.append(stopwatch.time(runner.call)[0])
            spent[number] += stopwatch.spent_s - before
