"""Queues' waiting lines, and who of a line starts next. Bookkeeping for the scheduler; no effects."""

from __future__ import annotations

from bisect import insort
from collections import deque

from batchyard.batch.capacity import Consumables, Room
from batchyard.batch.changes import Start
from batchyard.batch.jobs import Job
from batchyard.batch.queues import Queue
from batchyard.batch.tracking import RUNNABLE, STARTING, Placement, TrackedJob


class Line:
    """A queue's waiting line."""

    __slots__ = ("front", "jobs", "queue", "rooms")

    def __init__(self, queue: Queue, rooms: list[Room]) -> None:
        self.queue = queue
        self.rooms = rooms
        #: children to be tried again, ahead of everything else
        self.front: deque[tuple[TrackedJob, int]] = deque()
        #: jobs with RUNNABLE children, in the order of their submission
        self.jobs: list[TrackedJob] = []

    def add(self, tracked: TrackedJob) -> None:
        if not tracked.is_in_line:
            tracked.is_in_line = True
            insort(self.jobs, tracked, key=lambda waiting: waiting.number)


class Pass:
    """One walk along a queue's line.

    A child that does not fit keeps what it waits for: behind one that lacks vCPUs or memory nothing starts, so that
    a large child is never starved by small ones; behind one that lacks only GPUs, children without GPUs may pass.
    A child that waits for a consumable resource holds up only its own job.
    """

    __slots__ = ("consumables", "gpus_are_held", "line", "starts")

    def __init__(self, line: Line, consumables: Consumables, starts: list[Start]) -> None:
        self.line = line
        self.consumables = consumables
        self.starts = starts
        self.gpus_are_held = False

    def run(self) -> None:
        if self.line.front and not self._retries():
            return
        emptied = False
        for tracked in self.line.jobs:
            ready = tracked.ready
            while ready:
                if tracked.codes[ready[0]] != RUNNABLE:
                    ready.popleft()
                    continue
                room = self._room(tracked.job)
                if room is None:
                    break
                self._start(tracked, ready.popleft(), room)
            if not ready:
                tracked.is_in_line = False
                emptied = True
            elif self._is_closed(tracked.job):
                break
        if emptied:
            self.line.jobs = [tracked for tracked in self.line.jobs if tracked.is_in_line]

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

    def _room(self, job: Job) -> Room | None:
        wanted = job.resources
        if wanted.gpus and self.gpus_are_held:
            return None
        if job.consumables and not self.consumables.have(job.consumables):
            return None
        for room in self.line.rooms:
            if room.has_room(wanted):
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
        tracked.move(index, STARTING)
        tracked.attempts[index] += 1
        name = room.environment.name
        self.starts.append(Start(job.id, index, tracked.attempts[index], gpus, name))
