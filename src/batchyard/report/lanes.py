"""Who ran beside whom: attempts packed into lanes, or counted moment by moment. Pure: numbers in, numbers out.

An attempt is there from its start up to, and not including, its end. Two overlap when each starts before the other
ends; so one that took less than a millisecond overlaps only those that were under way before and after it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def pack(starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    """The lane of each attempt: no two that overlap share one, and there are as many as ran at once at most."""
    lanes = [0] * len(starts)
    #: (end, lane) of what is under way
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    # The shorter first, so that one of no length is out of the way of another that starts with it.
    for i in sorted(range(len(starts)), key=lambda i: (starts[i], ends[i])):
        while busy and busy[0][0] <= starts[i]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lanes[i] = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (ends[i], lanes[i]))
    return lanes


def most_at_once(starts: Sequence[int], ends: Sequence[int]) -> int:
    """How many lanes ``pack`` would need, without packing."""
    busy: list[int] = []
    most = 0
    for start, end in sorted(zip(starts, ends, strict=True)):
        while busy and busy[0] <= start:
            heapq.heappop(busy)
        heapq.heappush(busy, end)
        most = max(most, len(busy))
    return most


def running(
    starts: Sequence[int], ends: Sequence[int], begin: int, stop: int, columns: int
) -> list[float]:
    """How many ran on average in each of ``columns`` equal parts of the time from ``begin`` to ``stop``."""
    width = max(1, stop - begin) / columns
    #: time spent within each column by those that do not fill it
    parts = [0.0] * (columns + 1)
    #: change, from the column before, in how many fill the whole column
    steps = [0] * (columns + 2)
    for start, end in zip(starts, ends, strict=True):
        first, last = (start - begin) / width, (end - begin) / width
        i, j = int(first), int(last)
        if not 0 <= i <= j <= columns:
            i, j = min(max(i, 0), columns), min(max(j, 0), columns)
            first, last = min(max(first, 0.0), float(columns)), min(max(last, 0.0), float(columns))
        if i == j:
            parts[i] += last - first
        else:
            parts[i] += i + 1 - first
            parts[j] += last - j
            steps[i + 1] += 1
            steps[j] -= 1
    counts, whole = [], 0
    for part, step in zip(parts[:columns], steps, strict=False):
        whole += step
        counts.append(part + whole)
    return counts
