"""Queues' waiting lines, and who of a line starts next. Bookkeeping for the scheduler; no effects."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from batchyard.batch import blocked
from batchyard.batch.capacity import Consumables, Room
from batchyard.batch.changes import Start
from batchyard.batch.jobs import Job, Resources
from batchyard.batch.queues import FairShare, Queue
from batchyard.batch.shares import ShareUse
from batchyard.batch.tracking import RUNNABLE, STARTING, Placement, TrackedJob


class Blocked(NamedTuple):
    """A child at the head of a line that can never start."""

    tracked: TrackedJob
    child: int
    reason: str
    since_ms: int


class Line:
    """A queue's waiting line."""

    __slots__ = ("blocked", "front", "jobs", "queue", "rooms", "use")

    def __init__(self, queue: Queue, rooms: list[Room]) -> None:
        self.queue = queue
        self.rooms = rooms
        #: what its shares have used, where it has a policy
        self.use = ShareUse(queue.fair_share.decay_s) if queue.fair_share else None
        #: the head, where it can never start
        self.blocked: Blocked | None = None
        #: children to be tried again, ahead of everything else
        self.front: deque[tuple[TrackedJob, int]] = deque()
        #: jobs with RUNNABLE children, in the order of their submission
        self.jobs: list[TrackedJob] = []

    def add(self, tracked: TrackedJob) -> None:
        if not tracked.is_in_line:
            tracked.is_in_line = True
            insort(self.jobs, tracked, key=lambda waiting: waiting.number)

    def change(self, queue: Queue, rooms: list[Room]) -> None:
        """Another priority, policy, order of environments; who waits goes on waiting."""
        self.queue, self.rooms = queue, rooms
        if queue.fair_share is None:
            self.use = None
        elif self.use is None:
            self.use = ShareUse(queue.fair_share.decay_s)
        else:
            self.use.set_decay(queue.fair_share.decay_s)

    def waiting(self, now_ms: int) -> Iterator[tuple[TrackedJob, int]]:
        """The RUNNABLE children: those to be tried again first, then as they came, or as their shares have it."""
        for tracked, index in self.front:
            if tracked.codes[index] == RUNNABLE:
                yield tracked, index
        jobs, policy, use = self.jobs, self.queue.fair_share, self.use
        if policy is not None and use is not None:
            jobs = sorted(
                jobs,
                key=lambda t: (
                    _weighted(t.job.share, use, policy, now_ms),
                    t.job.share,
                    -t.job.priority,
                    t.number,
                ),
            )
        for tracked in jobs:
            for index in tracked.ready:
                if tracked.codes[index] == RUNNABLE:
                    yield tracked, index

    def look_at_head(self, machine: Resources | None, now_ms: int) -> Blocked | None:
        """Notes whether the first child can ever start; returns it if that has lasted longer than the queue allows."""
        tracked, index = next(self.waiting(now_ms), (None, 0))
        environments = [room.environment for room in self.rooms]
        reason = blocked.reason(tracked.job.resources, environments, machine) if tracked else ""
        if tracked is None or not reason:
            self.blocked = None
            return None
        before, self.blocked = self.blocked, Blocked(tracked, index, reason, now_ms)
        if before is not None and before[:3] == self.blocked[:3]:
            self.blocked = before
        lasted_ms = now_ms - self.blocked.since_ms
        for limit in self.queue.time_limits:
            if limit.reason == blocked.code(reason) and lasted_ms >= limit.max_time_s * 1000:
                expired, self.blocked = self.blocked, None
                return expired
        return None


class Pass:
    """One walk along a queue's line.

    A child that does not fit keeps what it waits for: behind one that lacks vCPUs or memory nothing starts, so that
    a large child is never starved by small ones; behind one that lacks only GPUs, children without GPUs may pass.
    A child that waits for a consumable resource holds up only its own job.
    """

    __slots__ = ("consumables", "gpus_are_held", "line", "now_ms", "starts")

    def __init__(
        self, line: Line, consumables: Consumables, starts: list[Start], now_ms: int
    ) -> None:
        self.line = line
        self.now_ms = now_ms
        self.consumables = consumables
        self.starts = starts
        self.gpus_are_held = False

    def run(self) -> None:
        if self.line.front and not self._retries():
            return
        if self.line.queue.fair_share is None:
            self._in_order()
        else:
            self._by_share(self.line.queue.fair_share)
        if any(not tracked.is_in_line for tracked in self.line.jobs):
            self.line.jobs = [tracked for tracked in self.line.jobs if tracked.is_in_line]

    def _in_order(self) -> None:
        for tracked in self.line.jobs:
            while (index := _next_ready(tracked)) is not None:
                room = self._room(tracked.job)
                if room is None:
                    break
                tracked.ready.popleft()
                self._start(tracked, index, room)
            if tracked.is_in_line and self._is_closed(tracked.job):
                break

    def _by_share(self, policy: FairShare) -> None:
        """Child by child: the share that has used least, in it the highest priority, then who came first."""
        assert self.line.use is not None
        use = self.line.use
        waiting = sorted(self.line.jobs, key=lambda t: (-t.job.priority, t.number))
        waiting = [tracked for tracked in waiting if _next_ready(tracked) is not None]
        active = {tracked.job.share for tracked in waiting} | use.lately(self.now_ms)
        held_back = policy.reserved(len(active))
        while waiting:
            # min takes the first of equals, and within a share the list is in order.
            tracked = min(waiting, key=lambda t: _weighted(t.job.share, use, policy, self.now_ms))
            index = _next_ready(tracked)
            if index is None:
                waiting.remove(tracked)
                continue
            room = self._room(tracked.job, held_back)
            if room is not None:
                tracked.ready.popleft()
                self._start(tracked, index, room)
            elif self._is_closed(tracked.job):
                return
            else:
                waiting.remove(tracked)

    def _retries(self) -> bool:
        """The children at the front; False where one of them closes the line."""
        front, self.line.front = self.line.front, deque()
        while front:
            tracked, index = front.popleft()
            if tracked.codes[index] != RUNNABLE:
                continue
            room = self._room(tracked.job)
            if room is not None:
                self._start(tracked, index, room)
                continue
            self.line.front.append((tracked, index))
            if self._is_closed(tracked.job):
                self.line.front.extend(front)
                return False
        return True

    def _room(self, job: Job, held_back: float = 0.0) -> Room | None:
        """``held_back``: the part of each environment's vCPUs that must stay free."""
        wanted = job.resources
        if wanted.gpus and self.gpus_are_held:
            return None
        if job.consumables and not self.consumables.have(job.consumables):
            return None
        for room in self.line.rooms:
            spared = held_back * room.environment.capacity.vcpus
            if room.has_room(wanted) and room.free_vcpus - wanted.vcpus >= spared:
                return room
        return None

    def _is_closed(self, job: Job) -> bool:
        """After a child found no room: may nothing behind it start either?"""
        if job.consumables and not self.consumables.have(job.consumables):
            return False
        if job.resources.gpus:
            self.gpus_are_held = True
            return not any(room.has_room_but_for_gpus(job.resources) for room in self.line.rooms)
        return True

    def _start(self, tracked: TrackedJob, index: int, room: Room) -> None:
        job = tracked.job
        gpus = room.take(job.resources)
        if job.consumables:
            self.consumables.take(job.consumables)
        tracked.placed[index] = Placement(room, gpus)
        if self.line.use is not None:
            self.line.use.change(job.share, job.resources.vcpus, self.now_ms)
        tracked.move(index, STARTING)
        tracked.attempts[index] += 1
        name = room.environment.name
        self.starts.append(Start(job.id, index, tracked.attempts[index], gpus, name))


def _next_ready(tracked: TrackedJob) -> int | None:
    """The job's next RUNNABLE child; where it has none it leaves the line."""
    ready = tracked.ready
    while ready and tracked.codes[ready[0]] != RUNNABLE:
        ready.popleft()
    if ready:
        return ready[0]
    tracked.is_in_line = False
    return None


def _weighted(share: str, use: ShareUse, policy: FairShare, now_ms: int) -> float:
    return use.recent(share, now_ms) * policy.weight_of(share)
