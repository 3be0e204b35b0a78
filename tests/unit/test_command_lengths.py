"""Lengths of commands: their order, and when the commands end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchyard.command_lengths import (
    Seconds,
    expect,
    expected_end_s,
    fill_in,
    fill_in_numbers,
    lower_bound_s,
    sort_longest_first,
)

LENGTHS = st.lists(st.floats(0, 1e4), min_size=1, max_size=60)
SLOTS = st.integers(1, 20)


def test_equal_lengths_keep_their_order() -> None:
    assert list(sort_longest_first([3, 0, 2, 1], [5, 9, 5, 5])) == [1, 3, 0, 2]


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
    seconds = fill_in_numbers(3, {0: 4.0, 2: 1.0})
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
