"""Numbers of the slots of a job, which its children see and their records have."""

from __future__ import annotations

import heapq


class SlotNumbers:
    """Numbers of the running attempts of one job: each gets the lowest that is free."""

    __slots__ = ("_free", "_next", "_shared")

    def __init__(self) -> None:
        self._free: list[int] = []
        self._next = 0
        #: Slot -> attempts that share it with the one that took it.
        self._shared: dict[int, int] = {}

    def take(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self._next += 1
        return self._next - 1

    def share(self, slot: int) -> None:
        """Let one more attempt have the slot, which is given back as often as it was taken."""
        self._shared[slot] = self._shared.get(slot, 0) + 1

    def give_back(self, slot: int) -> None:
        if self._shared.get(slot):
            self._shared[slot] -= 1
        else:
            heapq.heappush(self._free, slot)
