"""One job as the scheduler keeps it: a byte per child, so that a child costs the same in any array.

Internal to ``scheduler.py``. Times and reasons of ended children are the store's to keep, not ours.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import NamedTuple

from batchyard.batch.capacity import Room
from batchyard.batch.jobs import Job, JobState, StatusReason

#: a state's code in the byte arrays is its place in JobState
STATES = tuple(JobState)
SUBMITTED, PENDING, RUNNABLE, STARTING, RUNNING, SUCCEEDED, FAILED = range(7)

#: bytes.translate table: whatever has not been placed yet becomes FAILED
_FAIL_UNPLACED = bytes(FAILED if code <= RUNNABLE else code for code in range(256))


class Placement(NamedTuple):
    room: Room
    gpus: tuple[int, ...]


class TrackedJob:
    __slots__ = (
        "attempts",
        "blockers",
        "cancelled",
        "child_followers",
        "codes",
        "counts",
        "followers",
        "is_in_line",
        "is_sequential",
        "job",
        "number",
        "pair_followers",
        "placed",
        "ready",
        "reason",
        "settled",
        "stopping",
        "unmet",
    )

    def __init__(self, job: Job, number: int) -> None:
        self.job = job
        #: order of submission
        self.number = number
        self.codes = bytearray(bytes([PENDING]) * job.size)
        self.attempts = bytearray(job.size)
        self.counts = [0] * len(STATES)
        self.counts[PENDING] = job.size
        #: children that are RUNNABLE, in order; may hold some that are not any more, which are passed over
        self.ready: deque[int] = deque()
        #: whether it stands in its queue's line
        self.is_in_line = False
        self.placed: dict[int, Placement] = {}
        #: why a placed child is being stopped
        self.stopping: dict[int, str] = {}
        #: dependencies of the whole job that have not succeeded yet
        self.unmet = 0
        #: per child, how many other children it still waits for; None where no child waits for one
        self.blockers: array[int] | None = None
        self.is_sequential = False
        #: jobs that wait for all of this one
        self.followers: list[TrackedJob] = []
        #: jobs that wait for one child of this one
        self.child_followers: dict[int, list[TrackedJob]] = {}
        #: arrays whose child i waits for child i of this one
        self.pair_followers: list[TrackedJob] = []
        #: why the whole job failed, where that is not just a failed child
        self.reason = ""
        #: why waiting children (None: all of them) fail once what they wait for has ended
        self.cancelled: dict[int | None, str] = {}
        #: set once its end has been announced
        self.settled = False

    def move(self, index: int, code: int) -> None:
        self.counts[self.codes[index]] -= 1
        self.counts[code] += 1
        self.codes[index] = code

    def block(self, index: int) -> None:
        if self.blockers is None:
            self.blockers = array("L", [0]) * self.job.size
        self.blockers[index] += 1

    def release(self) -> bool:
        """All dependencies of the whole job are met: makes RUNNABLE what waits for nothing else."""
        if self.blockers is None and self.counts[PENDING] == self.job.size:
            self.codes = bytearray(bytes([RUNNABLE]) * self.job.size)
            self.counts[PENDING], self.counts[RUNNABLE] = 0, self.job.size
            self.ready.extend(range(self.job.size))
        else:
            for index, code in enumerate(self.codes):
                if code == PENDING and not (self.blockers and self.blockers[index]):
                    self.make_runnable(index)
        return bool(self.ready)

    def make_runnable(self, index: int) -> None:
        self.move(index, RUNNABLE)
        self.ready.append(index)

    def unblock(self, index: int) -> bool:
        """One of the children that this child waits for has succeeded; True if it became RUNNABLE."""
        assert self.blockers is not None
        self.blockers[index] -= 1
        if self.blockers[index] or self.unmet or self.codes[index] != PENDING:
            return False
        self.make_runnable(index)
        return True

    def fail_unplaced(self) -> list[int]:
        """Fails every child that no capacity was given to yet, and says which."""
        unplaced = (
            [i for i, code in enumerate(self.codes) if code <= RUNNABLE]
            if self.pair_followers
            else []
        )
        self.counts[FAILED] += sum(self.counts[: RUNNABLE + 1])
        self.counts[: RUNNABLE + 1] = [0] * (RUNNABLE + 1)
        self.codes = bytearray(self.codes.translate(_FAIL_UNPLACED))
        self.ready.clear()
        return unplaced

    def cancellation(self, index: int) -> str | None:
        return self.cancelled.get(index, self.cancelled.get(None))

    @property
    def is_over(self) -> bool:
        return self.counts[SUCCEEDED] + self.counts[FAILED] == self.job.size

    @property
    def state(self) -> JobState:
        """The job's own state. An array's parent is PENDING until all its children have ended."""
        if self.is_over:
            return JobState.FAILED if self.counts[FAILED] else JobState.SUCCEEDED
        if self.job.array_size is not None:
            return JobState.PENDING
        return STATES[self.codes[0]]

    def status_reason(self, child_reason: str) -> str:
        """Why the whole job ended as it did, given why its last child did."""
        if self.reason:
            return self.reason
        if self.job.array_size is None:
            return child_reason
        if not self.counts[FAILED]:
            return ""
        return self.cancelled.get(None, StatusReason.CHILD_FAILED)
