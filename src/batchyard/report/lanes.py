"""Pack attempts that overlap in time into lanes, and count how many run at once. Pure.

An attempt lasts from its start up to, but not including, its end. Two attempts overlap if each
starts before the other ends. An attempt of less than a millisecond overlaps only those that started
before it and ended after it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def pack(starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Return the lane of each attempt. No lane has two that overlap, and no lane is unneeded."""
    lanes = [0] * len(starts)
    #: (end, lane) of the attempts that run
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    # The shorter one first: an attempt of length 0 ends before the other that starts with it.
    for i in sorted(range(len(starts)), key=lambda i: (starts[i], ends[i])):
        while busy and busy[0][0] <= starts[i]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lanes[i] = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (ends[i], lanes[i]))
    return lanes


def max_concurrency(starts: Sequence[int], ends: Sequence[int]) -> int:
    """Return the number of lanes that ``pack`` needs, without packing."""
    busy: list[int] = []
    maximum = 0
    for start, end in sorted(zip(starts, ends, strict=True)):
        while busy and busy[0] <= start:
            heapq.heappop(busy)
        heapq.heappush(busy, end)
        maximum = max(maximum, len(busy))
    return maximum


def mean_concurrency(
    starts: Sequence[int], ends: Sequence[int], begin: int, stop: int, columns: int
) -> list[float]:
    """Return how many attempts run on average in each of ``columns`` equal parts of a time.

    The time is from ``begin`` to ``stop``; what is outside of it does not count.
    """
    width = max(1, stop - begin) / columns
    #: time in each column of the attempts that begin or end in it, in columns
    partial = [0.0] * (columns + 1)
    #: change, from the previous column, in the number of attempts that fill the whole column
    changes = [0] * (columns + 2)
    for start, end in zip(starts, ends, strict=True):
        first, last = (start - begin) / width, (end - begin) / width
        i, j = int(first), int(last)
        if not 0 <= i <= j <= columns:
            i, j = min(max(i, 0), columns), min(max(j, 0), columns)
            first, last = min(max(first, 0.0), float(columns)), min(max(last, 0.0), float(columns))
        if i == j:
            partial[i] += last - first
        else:
            partial[i] += i + 1 - first
            partial[j] += last - j
            changes[i + 1] += 1
            changes[j] -= 1
    means, full = [], 0
    for part, change in zip(partial[:columns], changes, strict=False):
        full += change
        means.append(part + full)
    return means
