"""Waiting lines of queues, and which of their children start next. Bookkeeping, without effects."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator

from batchyard.batch.blocked import blocked_reason, reason_code
from batchyard.batch.capacity import Consumables, FreeCapacity
from batchyard.batch.changes import Start
from batchyard.batch.fleets import Fleet, Host, launch_for
from batchyard.batch.jobs import Job, Resources
from batchyard.batch.queues import FairShare, Queue
from batchyard.batch.share_usage import ShareUsage
from batchyard.batch.tracked_job import RUNNABLE, STARTING, Placement, TrackedJob
from batchyard.quick_dataclasses import NamedTuple

_UNLIMITED = 2**40
#: A series takes at most this part of the children that wait, so that all rooms end together.
_SERIES_PART = 16
#: The capacities of compute environments: with instances, or of fixed size.
Capacities = list[FreeCapacity | Fleet]


class BlockedHead(NamedTuple):
    """The child at the head of a line, if it can never start."""

    tracked: TrackedJob
    child: int
    reason: str
    since_ms: int


class WaitingLine:
    """The children of a queue that wait for capacity."""

    __slots__ = ("blocked_head", "capacities", "jobs", "queue", "retries", "usage")

    def __init__(self, queue: Queue, capacities: Capacities) -> None:
        self.queue = queue
        #: free capacity of the queue's environments, in their order
        self.capacities = capacities
        #: what the shares have used; None without a fair-share policy
        self.usage = ShareUsage(queue.fair_share.decay_s) if queue.fair_share else None
        self.blocked_head: BlockedHead | None = None
        #: children that are tried again, ahead of all others
        self.retries: deque[tuple[TrackedJob, int]] = deque()
        #: jobs with RUNNABLE children, in the order of their submission
        self.jobs: list[TrackedJob] = []

    def add(self, tracked: TrackedJob) -> None:
        if not tracked.is_in_line:
            tracked.is_in_line = True
            insort(self.jobs, tracked, key=lambda waiting: waiting.number)

    def set_queue(self, queue: Queue, capacities: Capacities) -> None:
        """Change priority, policy and environments; the children in the line keep waiting."""
        self.queue, self.capacities = queue, capacities
        if queue.fair_share is None:
            self.usage = None
        elif self.usage is None:
            self.usage = ShareUsage(queue.fair_share.decay_s)
        else:
            self.usage.set_decay(queue.fair_share.decay_s)

    def runnable_children(self, now_ms: int) -> Iterator[tuple[TrackedJob, int]]:
        """Yield the RUNNABLE children: retries first, then by share or in order of submission."""
        yield from self._runnable_retries()
        for tracked in self._jobs_in_order(now_ms):
            for index in tracked.ready:
                if tracked.codes[index] == RUNNABLE:
                    yield tracked, index

    def _runnable_retries(self) -> Iterator[tuple[TrackedJob, int]]:
        return (entry for entry in self.retries if entry[0].codes[entry[1]] == RUNNABLE)

    def _jobs_in_order(self, now_ms: int) -> list[TrackedJob]:
        """Return the jobs with RUNNABLE children, by share or in order of submission."""
        policy, usage = self.queue.fair_share, self.usage
        if policy is None or usage is None:
            return self.jobs
        return sorted(
            self.jobs,
            key=lambda tracked: (
                _weighted_use(tracked.job.share, usage, policy, now_ms),
                tracked.job.share,
                -tracked.job.priority,
                tracked.number,
            ),
        )

    def launch_hosts(
        self, consumables: Consumables, machine: FreeCapacity | None, now_ms: int
    ) -> bool:
        """Launch instances for the children at the front; return whether one is ready now."""
        if machine is not None and not machine.free_vcpus:
            return False  # The usual case: every child takes a vCPU.
        fleets = [c for c in self.capacities if isinstance(c, Fleet) and c.can_grow]
        if not fleets:
            return False
        free = None if machine is None else machine.free
        if self.queue.fair_share is not None and self.queue.fair_share.reservation_percent:
            free = self._without_reservation(self.queue.fair_share, fleets, free, now_ms)
        return launch_for(self._waiting_children(consumables, now_ms), fleets, free)

    def _waiting_children(
        self, consumables: Consumables, now_ms: int
    ) -> Iterator[tuple[Resources, int]]:
        """Yield what each child that needs a host requests, and the vCPUs from it on in its job.

        Children that would wait for a consumable resource need no host.
        """
        free_consumables = consumables.copy()
        for tracked, _ in self._runnable_retries():
            if free_consumables.have(tracked.job.consumables):
                free_consumables.take(tracked.job.consumables)
                yield tracked.job.resources, tracked.job.resources.vcpus
        for tracked in self._jobs_in_order(now_ms):
            job, count = tracked.job, len(tracked.ready)
            for position, index in enumerate(tracked.ready):
                if not free_consumables.have(job.consumables):
                    break
                if tracked.codes[index] == RUNNABLE:
                    free_consumables.take(job.consumables)
                    yield job.resources, job.resources.vcpus * (count - position)

    def _without_reservation(
        self, policy: FairShare, fleets: list[Fleet], free: Resources | None, now_ms: int
    ) -> Resources:
        """Return the free capacity without the vCPUs that are reserved for other shares."""
        reserved_fraction = policy.reserved_fraction(len(self.active_shares(now_ms)))
        vcpus = sum(
            int(fleet.free_vcpus - reserved_fraction * fleet.environment.capacity.vcpus)
            for fleet in fleets
        )
        if free is None:
            return Resources(vcpus, _UNLIMITED, _UNLIMITED)
        return Resources(min(vcpus, free.vcpus), free.memory_mib, free.gpus)

    def active_shares(self, now_ms: int) -> set[str]:
        """Return the shares that have children which wait or run, or had some lately."""
        used = set() if self.usage is None else self.usage.active_shares(now_ms)
        return {tracked.job.share for tracked in self.jobs if tracked.is_in_line} | used

    def check_head(self, machine: Resources | None, now_ms: int) -> BlockedHead | None:
        """Record whether the first child can never start.

        Returns the child if it has been blocked for longer than the queue's time limit.
        """
        tracked, index = next(self.runnable_children(now_ms), (None, 0))
        environments = [capacity.environment for capacity in self.capacities]
        reason = blocked_reason(tracked.job.resources, environments, machine) if tracked else ""
        if tracked is None or not reason:
            self.blocked_head = None
            return None
        head = BlockedHead(tracked, index, reason, now_ms)
        if self.blocked_head is not None and self.blocked_head[:3] == head[:3]:
            head = self.blocked_head
        blocked_ms = now_ms - head.since_ms
        for limit in self.queue.time_limits:
            if limit.reason == reason_code(reason) and blocked_ms >= limit.max_time_s * 1000:
                self.blocked_head = None
                return head
        self.blocked_head = head
        return None


class PlacementPass:
    """One walk along a queue's line, which places the children that fit.

    A child that does not fit reserves what it waits for. Behind a child that lacks vCPUs or memory
    nothing starts, so that small children never starve a large one. Behind a child that lacks only
    GPUs, children without GPUs start. A child that waits for a consumable resource holds up only
    its own job.
    """

    __slots__ = ("consumables", "gpus_are_reserved", "line", "now_ms", "starts")

    def __init__(
        self, line: WaitingLine, consumables: Consumables, starts: list[Start], now_ms: int
    ) -> None:
        """``starts``: the list to which the pass adds what it places."""
        self.line = line
        self.now_ms = now_ms
        self.consumables = consumables
        self.starts = starts
        self.gpus_are_reserved = False

    def run(self) -> None:
        if self.line.retries and not self.place_retries():
            return
        if self.line.queue.fair_share is None:
            self._place_in_order()
        else:
            self._place_by_share(self.line.queue.fair_share)
        if any(not tracked.is_in_line for tracked in self.line.jobs):
            self.line.jobs = [tracked for tracked in self.line.jobs if tracked.is_in_line]

    def _place_in_order(self) -> None:
        for tracked in self.line.jobs:
            while (index := _next_ready(tracked)) is not None:
                room = self._find_room(tracked.job)
                if room is None:
                    break
                tracked.ready.remove_first()
                self._start(tracked, index, room)
                if tracked.series_length > 1:
                    self._add_followers(tracked, tracked.placed[index])
            if tracked.is_in_line and self._closes_line(tracked.job):
                break

    def _place_by_share(self, policy: FairShare) -> None:
        """Place child by child: least used share, then highest priority, then first submitted."""
        assert self.line.usage is not None
        usage = self.line.usage
        waiting = sorted(
            self.line.jobs, key=lambda tracked: (-tracked.job.priority, tracked.number)
        )
        waiting = [tracked for tracked in waiting if _next_ready(tracked) is not None]
        reserved_fraction = policy.reserved_fraction(len(self.line.active_shares(self.now_ms)))
        while waiting:
            # min takes the first of equals, and the list is in order within a share.
            tracked = min(
                waiting, key=lambda t: _weighted_use(t.job.share, usage, policy, self.now_ms)
            )
            index = _next_ready(tracked)
            if index is None:
                waiting.remove(tracked)
                continue
            room = self._find_room(tracked.job, reserved_fraction)
            if room is not None:
                tracked.ready.remove_first()
                self._start(tracked, index, room)
            elif self._closes_line(tracked.job):
                return
            else:
                waiting.remove(tracked)

    def place_retries(self) -> bool:
        """Place the children that are tried again; return False if one of them closes the line."""
        retries, self.line.retries = self.line.retries, deque()
        while retries:
            tracked, index = retries.popleft()
            if tracked.codes[index] != RUNNABLE:
                continue
            room = self._find_room(tracked.job)
            if room is not None:
                self._start(tracked, index, room)
                continue
            self.line.retries.append((tracked, index))
            if self._closes_line(tracked.job):
                self.line.retries.extend(retries)
                return False
        return True

    def _find_room(self, job: Job, reserved_fraction: float = 0.0) -> FreeCapacity | Host | None:
        """Return room for a child of the job, in the first environment that has some.

        ``reserved_fraction``: the fraction of each environment's vCPUs that must stay free.
        """
        requested = job.resources
        if requested.gpus and self.gpus_are_reserved:
            return None
        if job.consumables and not self.consumables.have(job.consumables):
            return None
        for capacity in self.line.capacities:
            room = capacity.find_room(requested)
            if room is None:
                if capacity.could_grow_for(requested):
                    return None  # Environments are tried in order, also before they have hosts.
                continue
            if not reserved_fraction:
                return room
            reserved_vcpus = reserved_fraction * capacity.environment.capacity.vcpus
            if capacity.free_vcpus - requested.vcpus >= reserved_vcpus:
                return room
        return None

    def _closes_line(self, job: Job) -> bool:
        """Return whether a child of the job that does not fit stops everything behind it."""
        if job.consumables and not self.consumables.have(job.consumables):
            return False
        if job.resources.gpus:
            self.gpus_are_reserved = True
            return not any(
                capacity.lacks_only_gpus(job.resources) for capacity in self.line.capacities
            )
        return True

    def _start(self, tracked: TrackedJob, index: int, room: FreeCapacity | Host) -> None:
        job = tracked.job
        gpus = room.take(job.resources)
        if job.consumables:
            self.consumables.take(job.consumables)
        if self.line.usage is not None:
            self.line.usage.change(job.share, job.resources.vcpus, self.now_ms)
        self.starts.append(_place(tracked, index, Placement(room, gpus, index)))

    def _add_followers(self, tracked: TrackedJob, placement: Placement) -> None:
        """Place the next children of the job in the room of one that has just been placed."""
        if not self.consumables.are_given_back(tracked.job.consumables):
            return  # Each child uses up its own.
        length = min(tracked.series_length - 1, len(tracked.ready) // _SERIES_PART)
        for _ in range(length):
            index = _next_ready(tracked)
            if index is None:
                return
            tracked.ready.remove_first()
            placement.children += 1
            self.starts.append(_place(tracked, index, placement, is_follower=True))


def _place(
    tracked: TrackedJob, index: int, placement: Placement, *, is_follower: bool = False
) -> Start:
    tracked.placed[index] = placement
    tracked.move(index, STARTING)
    tracked.attempts[index] += 1
    room = placement.room
    return Start(
        tracked.job.id,
        index,
        tracked.attempts[index],
        placement.gpus,
        room.environment.name,
        room.host_id,
        is_follower,
    )


def _next_ready(tracked: TrackedJob) -> int | None:
    """Return the job's next RUNNABLE child; take the job out of the line if there is none."""
    ready = tracked.ready
    while (index := ready.first()) is not None:
        if tracked.codes[index] == RUNNABLE:
            return index
        ready.remove_first()
    tracked.is_in_line = False
    return None


def _weighted_use(share: str, usage: ShareUsage, policy: FairShare, now_ms: int) -> float:
    return usage.recent_vcpu_s(share, now_ms) * policy.weight_of(share)
