"""The EC2 instances of a compute environment: launched for waiting children, ended when idle.

AWS Batch counts vCPUs in whole instances, and packs children on them (facts, 8.1 and 8.2).
Bookkeeping for the scheduler, without effects; callers pass the time.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from batchyard.batch.capacity import FreeCapacity
from batchyard.batch.jobs import Resources
from batchyard.batch.queues import ComputeEnvironment, FleetSettings, InstanceType, TypeChoice

#: EC2 shows instances for about an hour after their end; this many are enough to look at.
_MAX_ENDED_HOSTS = 200


class Host:
    """An instance, with the room that it has left for children."""

    __slots__ = (
        "ended_ms",
        "ends_at_ms",
        "fleet",
        "free_gpus",
        "free_memory_mib",
        "free_vcpus",
        "host_id",
        "idle_since_ms",
        "is_draining",
        "is_spot",
        "launched_ms",
        "number",
        "ready_ms",
        "type",
        "was_reclaimed",
    )

    def __init__(
        self, fleet: Fleet, host_id: str, number: int, instance_type: InstanceType, now_ms: int
    ) -> None:
        self.fleet = fleet
        self.host_id = host_id
        #: 0 for the first host of its fleet
        self.number = number
        self.type = instance_type
        self.is_spot = fleet.settings.is_spot
        self.free_vcpus = instance_type.resources.vcpus
        self.free_memory_mib = instance_type.resources.memory_mib
        self.free_gpus = instance_type.resources.gpus
        self.launched_ms = now_ms
        #: children can start from here on
        self.ready_ms = now_ms + int(fleet.settings.launch_s * 1000)
        self.idle_since_ms = self.ready_ms
        #: None while the instance exists
        self.ended_ms: int | None = None
        #: the children that are left then lose their host; None for no such time
        self.ends_at_ms: int | None = None
        #: whether the host gets no new children and ends with its last one
        self.is_draining = False
        #: whether EC2 took it away, or is about to
        self.was_reclaimed = False

    @property
    def environment(self) -> ComputeEnvironment:
        return self.fleet.environment

    @property
    def is_idle(self) -> bool:
        return self.free == self.type.resources

    @property
    def free(self) -> Resources:
        return Resources(self.free_vcpus, self.free_memory_mib, self.free_gpus)

    def has_room(self, requested: Resources) -> bool:
        return (
            requested.vcpus <= self.free_vcpus
            and requested.memory_mib <= self.free_memory_mib
            and requested.gpus <= self.free_gpus
            and not self.is_draining
        )

    def take(self, requested: Resources) -> tuple[int, ...]:
        """Take room for a child, and return the numbers of its GPUs on this machine."""
        self.free_vcpus -= requested.vcpus
        self.free_memory_mib -= requested.memory_mib
        self.free_gpus -= requested.gpus
        return self.fleet.on_taken(self, requested)

    def give_back(self, requested: Resources, gpus: tuple[int, ...]) -> None:
        self.free_vcpus += requested.vcpus
        self.free_memory_mib += requested.memory_mib
        self.free_gpus += requested.gpus
        self.idle_since_ms = self.fleet.now_ms
        self.fleet.on_given_back(self, requested, gpus)


class Fleet:
    """The hosts of one compute environment.

    ``machine``: the capacity of the machine on which all children really run. It bounds what runs
    at once, and a host is launched only for children that the machine has room for.
    """

    def __init__(
        self,
        environment: ComputeEnvironment,
        machine: FreeCapacity | None,
        new_host_id: Callable[[], str],
    ) -> None:
        self.environment = environment
        self.settings = _require_settings(environment)
        self.hosts: list[Host] = []
        #: vCPUs of all instances: what AWS shows as desiredvCpus
        self.vcpus = 0
        #: vCPUs of the children on these instances
        self._used_vcpus = 0
        #: hosts with free vCPUs: a fleet can have hundreds of hosts that are full
        self._open_hosts: set[Host] = set()
        self.ended_hosts: deque[Host] = deque(maxlen=_MAX_ENDED_HOSTS)
        self.now_ms = 0
        self._machine = machine
        self._new_host_id = new_host_id
        self._launch_count = 0
        self._least_vcpus = _least_vcpus(self.settings)

    # -- capacity, as FreeCapacity has it ----------------------------------------------------------

    @property
    def free_vcpus(self) -> int:
        """vCPUs that children could still get, on hosts that exist or are not launched yet."""
        return max(self.environment.capacity.vcpus, self.vcpus) - self._used_vcpus

    def find_room(self, requested: Resources) -> Host | None:
        """Return the host that a child leaves the least room on; None if no host has room."""
        if not self.environment.is_enabled or not self._machine_has_room(requested):
            return None
        if self._is_too_large():
            return None
        hosts = [
            host
            for host in self._open_hosts
            if host.has_room(requested) and host.ready_ms <= self.now_ms
        ]
        return min(hosts, key=_room, default=None) if len(hosts) != 1 else hosts[0]

    def free_rooms(self) -> list[Resources]:
        """Return the room on each host that gets children, also on those that are not ready."""
        hosts = sorted(self._open_hosts, key=lambda host: host.number)
        return [host.free for host in hosts if not host.is_draining]

    def lacks_only_gpus(self, requested: Resources) -> bool:
        """Return whether a child would start if it asked for no GPUs."""
        return self.find_room(Resources(requested.vcpus, requested.memory_mib)) is not None

    def on_taken(self, host: Host, requested: Resources) -> tuple[int, ...]:
        """Record that a child got room on a host; return its GPUs on this machine."""
        self._used_vcpus += requested.vcpus
        if not host.free_vcpus:
            self._open_hosts.discard(host)
        return () if self._machine is None else self._machine.take(requested)

    def on_given_back(self, host: Host, requested: Resources, gpus: tuple[int, ...]) -> None:
        """Record that a child on a host has ended; the host may have ended before."""
        if host.ended_ms is None:
            self._used_vcpus -= requested.vcpus
            self._open_hosts.add(host)
        if self._machine is not None:
            self._machine.give_back(requested, gpus)

    def _machine_has_room(self, requested: Resources) -> bool:
        return self._machine is None or self._machine.has_all(requested)

    # -- changes -----------------------------------------------------------------------------------

    def resize(self, environment: ComputeEnvironment) -> None:
        """Change size, types and state. Hosts of other types or kind end with their children."""
        old, self.environment = self.settings, environment
        self.settings = new = _require_settings(environment)
        names = {instance_type.name for instance_type in new.types}
        for host in self.hosts:
            host.is_draining |= host.type.name not in names or old.is_spot != new.is_spot
        self._least_vcpus = _least_vcpus(new)

    def replace_hosts(self, after_ms: int) -> None:
        """Give the hosts no more children; ``after_ms`` from now they are expired."""
        ends_at_ms = self.now_ms + after_ms
        for host in self.hosts:
            host.is_draining = True
            # A later update does not give the hosts of an earlier one more time.
            host.ends_at_ms = min(host.ends_at_ms or ends_at_ms, ends_at_ms)

    def expired_hosts(self) -> list[Host]:
        """Return the hosts that must end now, with their children."""
        return [
            host
            for host in self.hosts
            if host.ends_at_ms is not None and host.ends_at_ms <= self.now_ms
        ]

    def request_vcpus(self, vcpus: int) -> None:
        """Launch instances until there are this many vCPUs; idle ones end later, as always.

        A disabled environment launches none.
        """
        while self.environment.is_enabled and (missing_vcpus := vcpus - self.vcpus) > 0:
            if self.launch(Resources(1, 1), missing_vcpus) is None:
                return

    def tick(self, now_ms: int) -> None:
        """Record the time; end idle hosts, and launch those that the minimum needs."""
        self.now_ms = now_ms
        idle_ms = self.settings.idle_s * 1000
        for host in list(self.hosts):
            if not host.is_idle or host.ready_ms > now_ms:
                continue
            is_spare = self.vcpus - host.type.resources.vcpus >= self.settings.min_vcpus
            is_over = host.is_draining or self._is_too_large()
            if is_over or (is_spare and now_ms - host.idle_since_ms >= idle_ms):
                self.end(host)
        self.request_vcpus(self.settings.min_vcpus)

    def _is_too_large(self) -> bool:
        """Return whether there are more instances than the maximum allows: it was lowered."""
        max_vcpus, vcpus = self.environment.capacity.vcpus, self.vcpus
        if vcpus <= max_vcpus or not self.settings.may_pass_max:
            return vcpus > max_vcpus
        smallest_vcpus = min(host.type.resources.vcpus for host in self.hosts)
        return vcpus - smallest_vcpus >= max_vcpus

    def end(self, host: Host) -> None:
        """End an instance. Its children, if any, hold their part of the machine until they end."""
        self.hosts.remove(host)
        self._open_hosts.discard(host)
        self.vcpus -= host.type.resources.vcpus
        self._used_vcpus -= host.type.resources.vcpus - host.free_vcpus
        self.ended_hosts.append(host)
        host.is_draining = True
        host.ended_ms = self.now_ms

    @property
    def can_grow(self) -> bool:
        """Return whether an instance of the smallest type may be launched now."""
        return self.environment.is_enabled and self._may_launch(self._least_vcpus)

    def could_grow_for(self, requested: Resources) -> bool:
        """Return whether an instance could be launched now that a child fits on."""
        return self.can_grow and bool(self._candidates(requested))

    def launch(self, requested: Resources, waiting_vcpus: int) -> Host | None:
        """Launch an instance for a child; return None if none is allowed.

        ``waiting_vcpus``: vCPUs of this child and of those behind it.
        """
        candidates = self._candidates(requested)
        if not candidates:
            return None
        choice = self.settings.choice
        instance_type = choose_type(candidates, choice, waiting_vcpus, self._launch_count)
        host = Host(self, self._new_host_id(), self._launch_count, instance_type, self.now_ms)
        self._launch_count += 1
        self.hosts.append(host)
        self._open_hosts.add(host)
        self.vcpus += instance_type.resources.vcpus
        return host

    def _candidates(self, requested: Resources) -> list[InstanceType]:
        """Return the types that a child fits on and that may be launched now."""
        return [
            instance_type
            for instance_type in self.settings.types
            if requested.fits_in(instance_type.resources)
            and self._may_launch(instance_type.resources.vcpus)
        ]

    def _may_launch(self, vcpus: int) -> bool:
        """Return whether an instance with so many vCPUs may be launched now."""
        max_vcpus = self.environment.capacity.vcpus
        if self.settings.may_pass_max:
            return vcpus <= max_vcpus and self.vcpus < max_vcpus
        return self.vcpus + vcpus <= max_vcpus


def _require_settings(environment: ComputeEnvironment) -> FleetSettings:
    assert environment.fleet is not None, "a fleet needs settings"
    return environment.fleet


def _room(host: Host) -> tuple[int, int, int]:
    """Return the room that a host has left, and its number to tell equal hosts apart."""
    return host.free_gpus, host.free_vcpus, host.number


def _least_vcpus(settings: FleetSettings) -> int:
    return min(instance_type.resources.vcpus for instance_type in settings.types)


def choose_type(
    candidates: Sequence[InstanceType], choice: TypeChoice, waiting_vcpus: int, launch_number: int
) -> InstanceType:
    """Return the type to launch, of those that a child fits on."""
    if choice is TypeChoice.FIRST:
        return candidates[0]
    if choice is TypeChoice.ANY:
        # The deepest pool of Spot capacity changes all the time, and nobody can foresee it.
        return candidates[zlib.crc32(b"%d" % launch_number) % len(candidates)]
    smallest = min(candidates, key=_size)
    if choice is TypeChoice.SMALLEST:
        return smallest
    fitting = [
        instance_type
        for instance_type in candidates
        if instance_type.resources.gpus == smallest.resources.gpus
        and instance_type.resources.vcpus <= waiting_vcpus
    ]
    if not fitting:
        return smallest
    most_vcpus = max(instance_type.resources.vcpus for instance_type in fitting)
    return min((t for t in fitting if t.resources.vcpus == most_vcpus), key=_size)


def _size(instance_type: InstanceType) -> tuple[int, int, int]:
    resources = instance_type.resources
    return resources.gpus, resources.vcpus, resources.memory_mib


def launch_for(
    waiting: Iterable[tuple[Resources, int]], fleets: Sequence[Fleet], machine: Resources | None
) -> bool:
    """Launch instances for the children at the front of a queue; return whether one is ready.

    ``waiting``: for each child what it requests, and the vCPUs that it and the children of its job
    behind it wait for. ``machine``: free capacity of the machine; children beyond it get no
    instance.
    """
    rooms: list[tuple[Fleet, list[Resources]]] = []
    is_ready = False
    for requested, waiting_vcpus in waiting:
        if machine is not None:
            if not requested.fits_in(machine):
                break
            waiting_vcpus = min(waiting_vcpus, machine.vcpus)
            machine = subtract(machine, requested)
        rooms = rooms or [(fleet, fleet.free_rooms()) for fleet in fleets]
        if any(_take_room(free_rooms, requested) for _, free_rooms in rooms):
            continue
        host = _launch_in_first(rooms, requested, waiting_vcpus)
        if host is None:
            break
        is_ready |= host.ready_ms <= host.fleet.now_ms
    return is_ready


def _launch_in_first(
    rooms: Sequence[tuple[Fleet, list[Resources]]], requested: Resources, waiting_vcpus: int
) -> Host | None:
    for fleet, free_rooms in rooms:
        host = fleet.launch(requested, waiting_vcpus)
        if host is not None:
            free_rooms.append(subtract(host.free, requested))
            return host
    return None


def _take_room(free_rooms: list[Resources], requested: Resources) -> bool:
    for number, free in enumerate(free_rooms):
        if requested.fits_in(free):
            free_rooms[number] = subtract(free, requested)
            return True
    return False


def subtract(capacity: Resources, taken: Resources) -> Resources:
    return Resources(
        capacity.vcpus - taken.vcpus,
        capacity.memory_mib - taken.memory_mib,
        capacity.gpus - taken.gpus,
    )
