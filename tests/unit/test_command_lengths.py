"""Lengths of commands: their order, and when the commands end."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchyard.command_lengths import (
    KnownSeconds,
    Seconds,
    expect,
    expected_end_s,
    fill_in,
    lower_bound_s,
    sort_longest_first,
)

LENGTHS = st.lists(st.floats(0, 1e4), min_size=1, max_size=60)
SLOTS = st.integers(1, 20)


def test_equal_lengths_keep_their_order() -> None:
    assert list(sort_longest_first([3, 0, 2, 1], [5, 9, 5, 5])) == [1, 3, 0, 2]


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 20))
def test_sorted_parts_are_merged_in_the_same_order(lengths: list[int], at_once: int) -> None:
    numbers = range(len(lengths))
    merged = sort_longest_first(numbers, lengths, at_once)
    assert list(merged) == sorted(numbers, key=lengths.__getitem__, reverse=True)


def test_the_seconds_of_a_long_list_take_a_few_bytes_each() -> None:
    count = 10_000
    tracemalloc.start()
    try:
        seconds = KnownSeconds(count, ((number, number / 7) for number in range(count))).fill_in()
        order = sort_longest_first(range(count), seconds.values, 1_000)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (seconds.known, order[0], order[-1]) == (count, count - 1, 0)
    assert peak_bytes < 50 * count


@given(LENGTHS, SLOTS)
def test_longest_first_is_near_the_lower_bound(lengths: list[float], slots: int) -> None:
    ordered = [lengths[number] for number in sort_longest_first(range(len(lengths)), lengths)]
    bound = lower_bound_s(lengths, slots)
    end = expected_end_s(ordered, slots)
    assert bound * 0.999999 <= end <= bound * (2 - 1 / slots) * 1.000001


def test_the_end_is_that_of_the_last_slot() -> None:
    assert expected_end_s([3, 3, 2, 2, 2], 2) == 7
    assert lower_bound_s([3, 3, 2, 2, 2], 2) == 6
    assert lower_bound_s([9, 1], 2) == 9


def test_unknown_commands_are_expected_to_take_the_mean() -> None:
    seconds = fill_in(["a", "b", "c"], {"a": 4.0, "c": 1.0}, 2.0)
    assert (list(seconds.values), seconds.known) == ([4.0, 2.0, 1.0], 2)
    seconds = KnownSeconds(3, [(0, 4.0), (2, 1.0), (3, 9.0)]).fill_in()
    assert (list(seconds.values), seconds.known) == ([4.0, 2.5, 1.0], 2)


@pytest.mark.parametrize(("slots", "expected_s"), [(2, 4.0), (100, 3.0)])
def test_an_expectation_uses_no_more_slots_than_there_are_commands(
    slots: int, expected_s: float
) -> None:
    seconds = Seconds([1.0, 2.0, 3.0], 2)
    # By the weights, the shortest goes first.
    found = expect(range(3), [9, 5, 1], seconds, slots)
    assert (found.slots, found.known, found.expected_s) == (min(slots, 3), 2, expected_s)
    assert found.lower_bound_s == 3.0
