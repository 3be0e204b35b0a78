"""Timing with a clock that the calls move: turns, budgets, how many calls are enough."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bench_values import Ticks

from batchyard.bench.timing import Effort, Finalist, Stopwatch, is_enough, time_in_turns

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
