"""Timing with a clock that the calls move: turns, budgets, how many calls are enough."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bench_values import Ticks

from batchyard.bench.timing import (
    FULL,
    QUICK,
    Effort,
    Finalist,
    Stopwatch,
    group_size,
    is_enough,
    time_in_turns,
)

EFFORT = Effort(min_calls=3, max_calls=10, budget_s=1.0)


def calls(clock: Ticks, seconds: float, log: list[float]) -> Callable[[], None]:
    def call() -> None:
        log.append(seconds)
        clock.pass_(seconds)

    return call


def test_each_gets_its_times_in_turns() -> None:
    clock, log = Ticks(), []
    stopwatch = Stopwatch(clock)
    runners = [Finalist(calls(clock, seconds, log), seconds) for seconds in (0.5, 0.25)]
    time_in_turns(runners, EFFORT, stopwatch)
    assert [len(runner.times_s) for runner in runners] == [3, 4]
    assert log[:6] == [0.5, 0.25] * 3
    assert runners[1].times_s == pytest.approx([0.25] * 4)
    assert stopwatch.spent_s == pytest.approx(sum(log))


def test_long_calls_are_repeated_three_times_and_short_ones_as_often_as_allowed() -> None:
    clock, log = Ticks(), []
    effort = Effort(min_calls=5, max_calls=10, budget_s=1.0)
    runners = [Finalist(calls(clock, 10.0, log), 10.0), Finalist(calls(clock, 1e-4, log), 1e-4)]
    time_in_turns(runners, effort, Stopwatch(clock))
    assert [len(runner.times_s) for runner in runners] == [3, 10]


def test_a_short_call_is_warmed_up_again_after_another_ones_turn() -> None:
    clock, log = Ticks(), []
    runners = [Finalist(calls(clock, 0.01, log), 0.01), Finalist(calls(clock, 0.02, log), 0.02)]
    time_in_turns(runners, EFFORT, Stopwatch(clock))
    assert len(log) > sum(len(runner.times_s) for runner in runners)


def test_alone_nothing_is_wasted() -> None:
    clock, log = Ticks(), []
    runner = Finalist(calls(clock, 0.01, log), 0.01)
    time_in_turns([runner], EFFORT, Stopwatch(clock))
    assert len(log) == len(runner.times_s) == 10


def test_enough() -> None:
    assert not is_enough([], 100, EFFORT)
    assert not is_enough([0.1] * 2, 100, EFFORT)
    assert not is_enough([0.1] * 3, 0.3, EFFORT)
    assert is_enough([0.1] * 3, 1.0, EFFORT)
    assert is_enough([0.1] * 10, 0.0, EFFORT)


def test_what_is_spent_counts_even_if_the_call_fails() -> None:
    clock = Ticks()
    stopwatch = Stopwatch(clock)

    def fails() -> None:
        clock.pass_(2)
        raise ValueError

    with pytest.raises(ValueError):
        stopwatch.time(fails)
    assert stopwatch.spent_s == 2


def test_short_calls_are_timed_in_groups_that_last_long_enough() -> None:
    clock, log = Ticks(), []
    effort = Effort(min_calls=3, max_calls=10, budget_s=1.0, min_total_s=0.5)
    short, long = Finalist(calls(clock, 1e-5, log), 1e-5), Finalist(calls(clock, 0.2, log), 0.2)
    time_in_turns([short, long], effort, Stopwatch(clock))
    assert len(short.times_s) == 10 and short.times_s == pytest.approx([1e-5] * 10)
    assert log.count(1e-5) * 1e-5 >= 0.5
    assert len(long.times_s) == log.count(0.2)  # never in groups


def test_a_group_is_as_large_as_needed_and_no_larger() -> None:
    effort = Effort(min_calls=5, max_calls=60, budget_s=4.0, min_total_s=0.6)
    assert [group_size(seconds, effort) for seconds in (1.0, 0.01, 0.005, 1e-5)] == [1, 1, 2, 1000]
    assert group_size(0.0, effort) == 100_000
    assert group_size(1e-6, EFFORT) == 1
    assert FULL.min_total_s >= 0.5 and QUICK.min_total_s > 0
