"""Free capacity of compute environments, with the numbers of GPUs, and of consumable resources.

Bookkeeping for the scheduler, without effects.
"""

from __future__ import annotations

import heapq

from batchyard.batch.jobs import Resources
from batchyard.batch.queues import ComputeEnvironment


class FreeCapacity:
    """Free vCPUs, memory and GPUs of one compute environment.

    Where several environments share one machine, its free capacity counts too.
    """

    __slots__ = ("environment", "free_gpus", "free_memory_mib", "free_vcpus", "machine")

    #: This capacity belongs to no instance.
    host_id = ""

    def __init__(
        self, environment: ComputeEnvironment, machine: FreeCapacity | None = None
    ) -> None:
        self.environment = environment
        self.machine = machine
        self.free_vcpus = environment.capacity.vcpus
        self.free_memory_mib = environment.capacity.memory_mib
        #: a heap, so that the GPUs with the lowest numbers are used first
        self.free_gpus = list(range(environment.capacity.gpus))

    @property
    def free(self) -> Resources:
        return Resources(self.free_vcpus, self.free_memory_mib, len(self.free_gpus))

    def resize(self, environment: ComputeEnvironment) -> None:
        """Change the environment's size and state.

        Placed children stay, even if they need more than there is now.
        """
        old, new = self.environment.capacity, environment.capacity
        self.environment = environment
        self.free_vcpus += new.vcpus - old.vcpus
        self.free_memory_mib += new.memory_mib - old.memory_mib
        self.free_gpus = [gpu for gpu in self.free_gpus if gpu < new.gpus]
        self.free_gpus += range(old.gpus, new.gpus)
        heapq.heapify(self.free_gpus)

    def has_vcpus_and_memory(self, requested: Resources) -> bool:
        return (
            requested.vcpus <= self.free_vcpus
            and requested.memory_mib <= self.free_memory_mib
            and self.environment.is_enabled
            and (self.machine is None or self.machine.has_vcpus_and_memory(requested))
        )

    def has_all(self, requested: Resources) -> bool:
        return (
            self.has_vcpus_and_memory(requested)
            and requested.gpus <= len(self.free_gpus)
            and (self.machine is None or requested.gpus <= len(self.machine.free_gpus))
        )

    def find_room(self, requested: Resources) -> FreeCapacity | None:
        """Return where a child can start now: here, or nowhere."""
        return self if self.has_all(requested) else None

    def could_grow_for(self, requested: Resources) -> bool:
        """Return whether there could be room later that does not exist yet."""
        return False

    def lacks_only_gpus(self, requested: Resources) -> bool:
        """Return whether a child would start if it asked for no GPUs."""
        return self.has_vcpus_and_memory(requested)

    def take(self, requested: Resources) -> tuple[int, ...]:
        """Take capacity, and return the numbers of its GPUs (on the machine, if there is one)."""
        self.free_vcpus -= requested.vcpus
        self.free_memory_mib -= requested.memory_mib
        gpus = (
            tuple(heapq.heappop(self.free_gpus) for _ in range(requested.gpus))
            if requested.gpus
            else ()
        )
        return gpus if self.machine is None else self.machine.take(requested)

    def give_back(self, requested: Resources, gpus: tuple[int, ...]) -> None:
        self.free_vcpus += requested.vcpus
        self.free_memory_mib += requested.memory_mib
        for gpu in gpus:
            heapq.heappush(self.free_gpus, gpu)
        if self.machine is not None:
            self.machine.give_back(requested, gpus)


class Consumables:
    """Consumable resources: counters that children hold while they run (facts, 7.3)."""

    __slots__ = ("_free", "_non_replenishable")

    def __init__(self, totals: dict[str, int]) -> None:
        self._free = dict(totals)
        #: names of resources that children do not give back
        self._non_replenishable: set[str] = set()

    def change(self, name: str, by: int, *, is_replenishable: bool = True) -> None:
        """Add ``by`` (negative: subtract) to the free quantity of a resource, which may be new."""
        self._free[name] = self._free.get(name, 0) + by
        if is_replenishable:
            self._non_replenishable.discard(name)
        else:
            self._non_replenishable.add(name)

    def copy(self) -> Consumables:
        """Return a copy to try out what could be taken."""
        return Consumables(self._free)

    def free(self, name: str) -> int:
        return self._free.get(name, 0)

    def have(self, requested: tuple[tuple[str, int], ...]) -> bool:
        return all(self._free.get(name, 0) >= quantity for name, quantity in requested)

    def are_given_back(self, requested: tuple[tuple[str, int], ...]) -> bool:
        """Return whether the children that hold these resources give all of them back."""
        return all(name not in self._non_replenishable for name, _ in requested)

    def take(self, requested: tuple[tuple[str, int], ...]) -> None:
        for name, quantity in requested:
            self._free[name] -= quantity

    def give_back(self, requested: tuple[tuple[str, int], ...]) -> None:
        for name, quantity in requested:
            if name not in self._non_replenishable:
                self._free[name] += quantity
