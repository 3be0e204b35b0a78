"""Blocks of commands that the children of a dynamic step claim at run time. Pure.

A step's commands have a dispatch order. A block is a range of positions in that order. Engine and
worker compute the same blocks from the orders of the step, so that a block is only a number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from math import gcd

#: Commands of a block at most: its records are one object, which is written again and again.
MAX_BLOCK_COMMANDS = 1000
#: A block has one part in so many, for each child, of what is left when it is cut. Two is the usual
#: factor of guided self-scheduling: early blocks are large, and the last ones are single commands.
_BLOCKS_PER_CHILD = 2
#: The last blocks of known weight have one part in so many of the work of a child. One that is
#: claimed last then makes the step at most so much longer.
_MIN_BLOCK_PARTS = 50
#: (sqrt(5) - 1) / 2. Steps of this part of a list visit all its regions evenly.
_GOLDEN_SECTION = 0.6180339887498949


class DispatchOrder:
    """The commands that are left of a list, in the order in which they are handed out.

    Without ``order``, the list is walked with a fixed stride, so that a sorted or clustered list
    gives blocks of about equal work. Memory and time do not grow with the list.
    """

    def __init__(
        self,
        total: int,
        skip: Iterable[tuple[int, int]] = (),
        order: Sequence[int] | None = None,
    ) -> None:
        """``skip``: commands that are done, as ascending inclusive ranges.

        ``order``: all numbers of the commands that are left, in their order; usually longest first.
        """
        gaps = _ranges_between(skip, total)
        #: Ranks among the commands that are left at which each consecutive range begins.
        self._range_ranks = [0, *accumulate(stop - start for start, stop in gaps)]
        self._range_starts = [start for start, _ in gaps]
        self._order = order
        self._count = self._range_ranks[-1]
        if order is not None and len(order) != self._count:
            raise ValueError(f"the order has {len(order)} commands, and {self._count} are left")
        self._stride = _find_stride(self._count)

    def __len__(self) -> int:
        """Return the number of commands that are left."""
        return self._count

    def command_at(self, position: int) -> int:
        """Return the number in the list of the command at a position of the order."""
        if not 0 <= position < self._count:
            raise IndexError(f"position {position} of {self._count}")
        if self._order is not None:
            return self._order[position]
        rank = position * self._stride % self._count
        number = bisect_right(self._range_ranks, rank) - 1
        return self._range_starts[number] + rank - self._range_ranks[number]


def cut_blocks(count: int, children: int, weights: Sequence[float] | None = None) -> list[range]:
    """Return the blocks of ``count`` commands for so many children, as ranges of positions.

    A block has about 1/(2 * children) of what is left when it is cut, at least one command: by
    number of commands, or by the ``weights`` of the positions. About 2 * children * ln(count)
    blocks, or one for each thousand commands. By weight, no block of several commands is made
    smaller than 1/50 of a child's share of all: less would cost more claims than it saves.
    """
    parts = _BLOCKS_PER_CHILD * children
    if weights is None:
        sizes = _cut_by_count(count, parts)
    else:
        sizes = _cut_by_weight(weights, parts, sum(weights) / children / _MIN_BLOCK_PARTS)
    bounds = [0, *accumulate(sizes)]
    return [range(start, stop) for start, stop in pairwise(bounds)]


def _cut_by_count(count: int, parts: int) -> Iterable[int]:
    while count:
        size = min(-(-count // parts), MAX_BLOCK_COMMANDS)
        yield size
        count -= size


def _cut_by_weight(weights: Sequence[float], parts: int, least: float) -> Iterable[int]:
    remaining = float(sum(weights))
    position = 0
    while position < len(weights):
        share, size, weight = max(remaining / parts, least), 0, 0.0
        for number in range(position, min(position + MAX_BLOCK_COMMANDS, len(weights))):
            # The first command is taken whatever its weight is.
            if size and weight + weights[number] > share:
                break
            size, weight = size + 1, weight + weights[number]
        yield size
        position, remaining = position + size, remaining - weight


def _find_stride(count: int) -> int:
    """Return a stride that visits each of ``count`` places once, and its regions evenly."""
    stride = max(1, round(count * _GOLDEN_SECTION))
    while gcd(stride, count) > 1:
        stride += 1
    return stride


def _ranges_between(skip: Iterable[tuple[int, int]], total: int) -> list[tuple[int, int]]:
    """Return (start, stop) of what ascending inclusive ranges leave of range(total)."""
    ranges, start = [], 0
    for first, last in [*skip, (total, total)]:
        stop = min(first, total)
        if stop > start:
            ranges.append((start, stop))
        start = max(start, last + 1)
    return ranges
