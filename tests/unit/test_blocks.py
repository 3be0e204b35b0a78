"""Blocks of dynamic steps: what they contain, and how well they keep children busy."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchyard import shard
from batchyard.blocks import MAX_BLOCK_COMMANDS, DispatchOrder, cut_blocks

COUNTS = st.integers(0, 5000)
CHILDREN = st.integers(1, 300)
WEIGHTS = st.lists(st.floats(0, 1e6), max_size=200).map(lambda values: sorted(values)[::-1])


@given(COUNTS, CHILDREN)
def test_every_position_is_in_exactly_one_block(count: int, children: int) -> None:
    blocks = cut_blocks(count, children)
    assert [position for block in blocks for position in block] == list(range(count))


@given(COUNTS, CHILDREN)
def test_blocks_never_grow_and_none_is_empty(count: int, children: int) -> None:
    sizes = [len(block) for block in cut_blocks(count, children)]
    assert sizes == sorted(sizes, reverse=True)
    assert all(1 <= size <= MAX_BLOCK_COMMANDS for size in sizes)


@given(st.integers(1, 2_000_000), CHILDREN)
def test_the_number_of_blocks_grows_with_the_logarithm_of_the_list(
    count: int, children: int
) -> None:
    bound = 2 * children * (log(count) + 1) + count / MAX_BLOCK_COMMANDS + 1
    assert len(cut_blocks(count, children)) <= bound


@given(WEIGHTS, CHILDREN)
def test_weighted_blocks_have_every_position_once(weights: list[float], children: int) -> None:
    blocks = cut_blocks(len(weights), children, weights)
    assert [position for block in blocks for position in block] == list(range(len(weights)))


@given(WEIGHTS, CHILDREN)
def test_a_weighted_block_has_one_command_or_its_share(weights: list[float], children: int) -> None:
    remaining = sum(weights)
    least = remaining / children / 50
    for block in cut_blocks(len(weights), children, weights):
        weight = sum(weights[position] for position in block)
        assert len(block) == 1 or weight <= max(remaining / (2 * children), least) * 1.000001
        remaining -= weight


@st.composite
def lists_with_gaps(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    total = draw(st.integers(0, 300))
    done = sorted(draw(st.sets(st.integers(0, max(0, total - 1)), max_size=total)))
    return total, [(number, number) for number in done]


@given(lists_with_gaps())
def test_the_order_has_each_command_that_is_left_once(
    example: tuple[int, list[tuple[int, int]]],
) -> None:
    total, skip = example
    order = DispatchOrder(total, skip)
    commands = [order.command_at(position) for position in range(len(order))]
    assert sorted(commands) == sorted(set(range(total)) - {first for first, _ in skip})


def test_skipped_ranges_are_inclusive_and_may_pass_the_end() -> None:
    order = DispatchOrder(10, [(0, 2), (5, 5), (8, 20)])
    assert {order.command_at(position) for position in range(len(order))} == {3, 4, 6, 7}


def test_an_explicit_order_is_used_as_it_is() -> None:
    order = DispatchOrder(5, [(1, 1)], [4, 0, 3, 2])
    assert [order.command_at(position) for position in range(4)] == [4, 0, 3, 2]


def test_an_order_that_does_not_fit_the_list_is_refused() -> None:
    with pytest.raises(ValueError, match="has 2 commands, and 5 are left"):
        DispatchOrder(5, order=[1, 2])


def test_a_position_outside_of_the_order_is_refused() -> None:
    with pytest.raises(IndexError, match="position 3 of 3"):
        DispatchOrder(3).command_at(3)


# -- how long a step takes -------------------------------------------------------------------------


def makespan_s(lengths_s: Sequence[float], children: int) -> float:
    """Return when the last child ends if each takes the next block when it is done with one."""
    order = DispatchOrder(len(lengths_s))
    free_at_s = [0.0] * children
    for block in cut_blocks(len(lengths_s), children):
        start_s = heapq.heappop(free_at_s)
        work_s = sum(lengths_s[order.command_at(position)] for position in block)
        heapq.heappush(free_at_s, start_s + work_s)
    return max(free_at_s)


def static_makespan_s(lengths_s: Sequence[float], children: int) -> float:
    count = len(lengths_s)
    return max(
        sum(lengths_s[number] for number in shard.commands_of(count, child, children))
        for child in range(children)
    )


def lower_bound_s(lengths_s: Sequence[float], children: int) -> float:
    return max(sum(lengths_s) / children, max(lengths_s))


def draw_lengths_s(seed: int, count: int) -> list[float]:
    generator = random.Random(seed)
    return [generator.lognormvariate(0, 1) for _ in range(count)]


@pytest.mark.parametrize("children", [2, 4, 16])
def test_unknown_lengths_take_at_most_a_tenth_more_than_the_lower_bound(children: int) -> None:
    ratios = []
    for seed in range(30):
        lengths_s = draw_lengths_s(seed, 1000)
        ratios.append(makespan_s(lengths_s, children) / lower_bound_s(lengths_s, children))
    assert sum(ratios) / len(ratios) <= 1.10


@pytest.mark.parametrize("children", [2, 4, 16, 64])
@pytest.mark.parametrize("is_descending", [False, True])
def test_a_sorted_list_is_never_worse_than_fixed_shares(children: int, is_descending: bool) -> None:
    for seed in range(10):
        lengths_s = sorted(draw_lengths_s(seed, 1000), reverse=is_descending)
        assert makespan_s(lengths_s, children) <= static_makespan_s(lengths_s, children)


def test_longest_first_with_known_lengths_is_near_the_lower_bound() -> None:
    for seed in range(10):
        lengths_s = sorted(draw_lengths_s(seed, 1000), reverse=True)
        free_at_s = [0.0] * 16
        for block in cut_blocks(1000, 16, lengths_s):
            start_s = heapq.heappop(free_at_s)
            heapq.heappush(free_at_s, start_s + sum(lengths_s[number] for number in block))
        assert max(free_at_s) <= 1.05 * lower_bound_s(lengths_s, 16)
