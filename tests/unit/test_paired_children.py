"""Children of two steps that wait child by child, of which a retry repeats only some."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchyard.batch.jobs import NOBODY
from batchyard.paired_children import find_group_ranges, order_by_groups, pair_children

LINKS = [("b", "a"), ("c", "b"), ("c", "x")]


@pytest.mark.parametrize(
    ("waiting", "needed", "pairs"),
    [
        (range(3), range(3), None),
        ((4, 7), (4, 7), None),
        ((7, 4), (4, 7), [1, 0]),
        ((4, 5), (5,), [1]),
        ((4,), (3, 4, 5), [NOBODY, 0, NOBODY]),
        ((1,), (2,), [NOBODY]),
    ],
)
def test_pairs_are_children_of_the_same_number(
    waiting: range | tuple[int, ...], needed: range | tuple[int, ...], pairs: list[int] | None
) -> None:
    assert pair_children(waiting, needed) == (None if pairs is None else array("l", pairs))


def test_steps_without_a_link_have_groups_of_their_own() -> None:
    children = {"a": [0, 2], "b": [0, 1], "z": [5]}
    ranges = find_group_ranges(order_by_groups(children, []), [])
    assert [len(found) for found in ranges.values()] == [1, 1, 1]
    assert len({found.group for (found,) in ranges.values()}) == 3


numbers = st.sets(st.integers(0, 12), min_size=1).map(sorted)


@given(st.fixed_dictionaries({step: numbers for step in "abcxz"}))
def test_a_group_is_the_same_children_in_the_same_order_in_every_step(
    children: dict[str, list[int]],
) -> None:
    ordered = order_by_groups(children, LINKS)
    assert {step: sorted(found) for step, found in ordered.items()} == children
    ranges = find_group_ranges(ordered, LINKS)
    members: dict[int, list[int]] = {}
    for step, found in ranges.items():
        assert [found.offset for found in found] == [
            sum(earlier.size for earlier in found[:n]) for n in range(len(found))
        ]
        assert sum(group.size for group in found) == len(children[step])
        for group, offset, size in found:
            own = list(ordered[step][offset : offset + size])
            assert members.setdefault(group, own) == own == sorted(own)
    # Two steps with a link: every child that both have is in a group that both have.
    for step, other in LINKS:
        shared = {found.group for found in ranges[step]} & {found.group for found in ranges[other]}
        assert {n for group in shared for n in members[group]} == (
            set(children[step]) & set(children[other])
        )
