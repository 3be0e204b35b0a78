"""What is free in a compute environment, and which GPUs by number. Bookkeeping for the scheduler; no effects."""

from __future__ import annotations

import heapq

from batchyard.batch.jobs import Resources
from batchyard.batch.queues import ComputeEnvironment


class Room:
    """One compute environment's free vCPUs, memory and GPUs."""

    __slots__ = ("environment", "free_gpus", "free_memory_mib", "free_vcpus")

    def __init__(self, environment: ComputeEnvironment) -> None:
        self.environment = environment
        self.free_vcpus = environment.capacity.vcpus
        self.free_memory_mib = environment.capacity.memory_mib
        #: a heap, so that the lowest numbers go out first and a half-empty machine is easy to read
        self.free_gpus = list(range(environment.capacity.gpus))

    def has_room_but_for_gpus(self, wanted: Resources) -> bool:
        return (
            wanted.vcpus <= self.free_vcpus
            and wanted.memory_mib <= self.free_memory_mib
            and self.environment.is_enabled
        )

    def has_room(self, wanted: Resources) -> bool:
        return self.has_room_but_for_gpus(wanted) and wanted.gpus <= len(self.free_gpus)

    def take(self, wanted: Resources) -> tuple[int, ...]:
        self.free_vcpus -= wanted.vcpus
        self.free_memory_mib -= wanted.memory_mib
        if not wanted.gpus:
            return ()
        return tuple(heapq.heappop(self.free_gpus) for _ in range(wanted.gpus))

    def give_back(self, wanted: Resources, gpus: tuple[int, ...]) -> None:
        self.free_vcpus += wanted.vcpus
        self.free_memory_mib += wanted.memory_mib
        for gpu in gpus:
            heapq.heappush(self.free_gpus, gpu)


class Consumables:
    """Named counters that children hold while they run: AWS's consumable resources, of the replenishable kind."""

    __slots__ = ("_free",)

    def __init__(self, totals: dict[str, int]) -> None:
        self._free = dict(totals)

    def add(self, name: str, total: int) -> None:
        self._free[name] = total

    def have(self, wanted: tuple[tuple[str, int], ...]) -> bool:
        return all(self._free.get(name, 0) >= quantity for name, quantity in wanted)

    def take(self, wanted: tuple[tuple[str, int], ...]) -> None:
        for name, quantity in wanted:
            self._free[name] -= quantity

    def give_back(self, wanted: tuple[tuple[str, int], ...]) -> None:
        for name, quantity in wanted:
            self._free[name] += quantity
