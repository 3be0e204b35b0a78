"""What is free in a compute environment, and which GPUs by number. Bookkeeping for the scheduler; no effects."""

from __future__ import annotations

import heapq

from batchyard.batch.jobs import Resources
from batchyard.batch.queues import ComputeEnvironment


class Room:
    """One compute environment's free vCPUs, memory and GPUs; where several share one machine, also the machine's."""

    __slots__ = ("environment", "free_gpus", "free_memory_mib", "free_vcpus", "machine")

    def __init__(self, environment: ComputeEnvironment, machine: Room | None = None) -> None:
        self.environment = environment
        self.machine = machine
        self.free_vcpus = environment.capacity.vcpus
        self.free_memory_mib = environment.capacity.memory_mib
        #: a heap, so that the lowest numbers go out first and a half-empty machine is easy to read
        self.free_gpus = list(range(environment.capacity.gpus))

    def resize(self, environment: ComputeEnvironment) -> None:
        """Another size, or enabled or not; what is placed stays, even where it is more than there is now."""
        old, new = self.environment.capacity, environment.capacity
        self.environment = environment
        self.free_vcpus += new.vcpus - old.vcpus
        self.free_memory_mib += new.memory_mib - old.memory_mib
        self.free_gpus = [gpu for gpu in self.free_gpus if gpu < new.gpus]
        self.free_gpus += range(old.gpus, new.gpus)
        heapq.heapify(self.free_gpus)

    def has_room_but_for_gpus(self, wanted: Resources) -> bool:
        return (
            wanted.vcpus <= self.free_vcpus
            and wanted.memory_mib <= self.free_memory_mib
            and self.environment.is_enabled
            and (self.machine is None or self.machine.has_room_but_for_gpus(wanted))
        )

    def has_room(self, wanted: Resources) -> bool:
        return (
            self.has_room_but_for_gpus(wanted)
            and wanted.gpus <= len(self.free_gpus)
            and (self.machine is None or wanted.gpus <= len(self.machine.free_gpus))
            and (not self.environment.instances or fits_an_instance(wanted, self.environment))
        )

    def take(self, wanted: Resources) -> tuple[int, ...]:
        """The GPUs' numbers are the machine's, where environments share one."""
        self.free_vcpus -= wanted.vcpus
        self.free_memory_mib -= wanted.memory_mib
        gpus = (
            tuple(heapq.heappop(self.free_gpus) for _ in range(wanted.gpus)) if wanted.gpus else ()
        )
        return gpus if self.machine is None else self.machine.take(wanted)

    def give_back(self, wanted: Resources, gpus: tuple[int, ...]) -> None:
        self.free_vcpus += wanted.vcpus
        self.free_memory_mib += wanted.memory_mib
        for gpu in gpus:
            heapq.heappush(self.free_gpus, gpu)
        if self.machine is not None:
            self.machine.give_back(wanted, gpus)


def fits_an_instance(wanted: Resources, environment: ComputeEnvironment) -> bool:
    instances = environment.instances
    return not instances or any(wanted.fits_in(instance) for instance in instances)


class Consumables:
    """Named counters that children hold while they run: AWS's consumable resources (facts, 7.3)."""

    __slots__ = ("_free", "_spent")

    def __init__(self, totals: dict[str, int]) -> None:
        self._free = dict(totals)
        #: names of those that are not given back
        self._spent: set[str] = set()

    def change(self, name: str, by: int, *, is_replenishable: bool = True) -> None:
        """More or less of it, from nothing where it is new; and whether it is given back from now on."""
        self._free[name] = self._free.get(name, 0) + by
        if is_replenishable:
            self._spent.discard(name)
        else:
            self._spent.add(name)

    def free(self, name: str) -> int:
        return self._free.get(name, 0)

    def have(self, wanted: tuple[tuple[str, int], ...]) -> bool:
        return all(self._free.get(name, 0) >= quantity for name, quantity in wanted)

    def take(self, wanted: tuple[tuple[str, int], ...]) -> None:
        for name, quantity in wanted:
            self._free[name] -= quantity

    def give_back(self, wanted: tuple[tuple[str, int], ...]) -> None:
        for name, quantity in wanted:
            if name not in self._spent:
                self._free[name] += quantity
