"""Children that wait for one child each of another step, also where a retry repeats only some.

A retry leaves out the children that have succeeded, so the arrays of two steps that wait child by
child may differ. Children that are repeated in the same steps form a group. The children of a
group follow one another, in the same order in all steps, so that a group of one step can wait for
the same group of another step child by child. Pure.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from batchyard.batch.jobs import NOBODY

#: Groups of connected steps: on AWS Batch, each group of a step is a job.
MAX_GROUPS = 1_000


class GroupRange(NamedTuple):
    """The children of a group in one step."""

    #: the same in all steps that have the group
    group: int
    #: position of the first child
    offset: int
    size: int


def order_by_groups(
    children: Mapping[str, Sequence[int]], links: Sequence[tuple[str, str]]
) -> dict[str, Sequence[int]]:
    """Return step -> its children, each group after the other.

    ``children``: step -> ascending numbers of its children in the step; ``links``: pairs of steps
    that wait child by child. Steps whose children form more than MAX_GROUPS groups are left out.
    """
    ordered: dict[str, Sequence[int]] = {}
    for steps in _connect_steps(children, links):
        by_number = _number_groups([children[step] for step in steps])
        if by_number is None:
            ordered |= {step: children[step] for step in steps}
        elif len(set(by_number)) <= MAX_GROUPS:
            ordered |= {step: sorted(children[step], key=by_number.__getitem__) for step in steps}
    return ordered


def find_group_ranges(
    children: Mapping[str, Sequence[int]], links: Sequence[tuple[str, str]]
) -> dict[str, list[GroupRange]]:
    """Return step -> its groups. The children are in the order of ``order_by_groups``."""
    ranges: dict[str, list[GroupRange]] = {}
    group_count = 0
    for steps in _connect_steps(children, links):
        by_number = _number_groups([children[step] for step in steps])
        if by_number is None:
            whole = GroupRange(group_count, 0, len(children[steps[0]]))
            ranges |= {step: [whole] for step in steps}
            group_count += 1
            continue
        for step in steps:
            ranges[step] = list(_divide(children[step], by_number, group_count))
        group_count += max(by_number) + 1
    return ranges


def pair_children(waiting: Sequence[int], needed: Sequence[int]) -> array[int] | None:
    """Return for each position in ``needed`` the position in ``waiting`` of the same number.

    It is NOBODY if ``waiting`` does not have the number. Returns None if both are equal.
    """
    if waiting == needed:
        return None
    positions = {number: position for position, number in enumerate(waiting)}
    return array("l", (positions.get(number, NOBODY) for number in needed))


def _divide(
    numbers: Sequence[int], groups: Sequence[int], first_group: int
) -> Iterable[GroupRange]:
    offset = 0
    for group, members in groupby(numbers, key=groups.__getitem__):
        size = sum(1 for _ in members)
        yield GroupRange(first_group + group, offset, size)
        offset += size


def _connect_steps(
    children: Mapping[str, Sequence[int]], links: Iterable[tuple[str, str]]
) -> list[list[str]]:
    """Return the steps in sets of those that links connect, directly or through others."""
    connected = {step: [step] for step in children}
    for one, other in links:
        if connected[one] is not connected[other]:
            connected[one] += connected[other]
            connected.update(dict.fromkeys(connected[other], connected[one]))
    return list({id(steps): steps for steps in connected.values()}.values())


def _number_groups(members: Sequence[Sequence[int]]) -> Sequence[int] | None:
    """Return for each number its group: numbers in a group are in the same ``members``.

    Returns None if all ``members`` are equal.
    """
    if all(numbers == members[0] for numbers in members):
        return None
    groups = array("L", [0]) * (max(map(max, members)) + 1)
    group_count = 1
    for numbers in members:
        # Those numbers of a group that this step has leave it for a new group.
        new_groups: dict[int, int] = {}
        for number in numbers:
            old_group = groups[number]
            if old_group not in new_groups:
                new_groups[old_group] = group_count
                group_count += 1
            groups[number] = new_groups[old_group]
    return groups
