"""A job with the states of its children, one byte each. Internal to the scheduler.

A child costs the same in an array of any size. Times and reasons of ended children are not kept
here but in the engine's store.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence

from batchyard.batch.capacity import FreeCapacity
from batchyard.batch.fleets import Host
from batchyard.batch.jobs import NOBODY, Job, JobState, StatusReason

#: the code of a state in the byte arrays is its position in JobState
STATES = tuple(JobState)
SUBMITTED, PENDING, RUNNABLE, STARTING, RUNNING, SUCCEEDED, FAILED = range(7)

#: table for bytes.translate: states before STARTING become FAILED
_FAIL_UNPLACED = bytes(FAILED if code <= RUNNABLE else code for code in range(256))


#: children of an order that are held as numbers at the same time
_HELD_CHILDREN = 1024


class ReadyChildren:
    """Children in the order in which they start.

    The order of a whole array stays a range: a deque of a million numbers would take 40 MB.
    """

    __slots__ = ("_children", "_order", "_position")

    def __init__(self) -> None:
        #: the first children
        self._children: deque[int] = deque()
        #: the children behind them, from the position on
        self._order: Sequence[int] = ()
        self._position = 0

    def __len__(self) -> int:
        return len(self._children) + len(self._order) - self._position

    def __iter__(self) -> Iterator[int]:
        yield from self._children
        for position in range(self._position, len(self._order)):
            yield self._order[position]

    def set_order(self, order: Sequence[int]) -> None:
        """Replace all children by those of ``order``, which does not change any more."""
        self._children.clear()
        self._order, self._position = order, 0

    def append(self, child: int) -> None:
        if self._position < len(self._order):
            self._children.extend(self._order[self._position :])
            self._order, self._position = (), 0
        self._children.append(child)

    def first(self) -> int | None:
        """Return the first child; None if there is none."""
        if not self._children:
            end = self._position + _HELD_CHILDREN
            self._children.extend(self._order[self._position : end])
            self._position = min(end, len(self._order))
        return self._children[0] if self._children else None

    def put_first(self, child: int) -> None:
        self._children.appendleft(child)

    def remove_first(self) -> None:
        """Remove the child that ``first`` has returned."""
        self._children.popleft()

    def clear(self) -> None:
        self.set_order(())


class Placement:
    """Room that a placed child holds until its attempt ends.

    The children of a series hold the same room, which is given back after the last of them.
    """

    __slots__ = ("children", "first_child", "gpus", "room")

    def __init__(self, room: FreeCapacity | Host, gpus: tuple[int, ...], first_child: int) -> None:
        self.room = room
        self.gpus = gpus
        #: the child for which the room was taken; the others are its followers
        self.first_child = first_child
        #: number of children that hold the room
        self.children = 1


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
        "is_settled",
        "job",
        "number",
        "pair_followers",
        "placed",
        "ready",
        "reason",
        "series_length",
        "size",
        "stopping",
        "unmet",
    )

    def __init__(self, job: Job, number: int) -> None:
        self.job = job
        self.size = job.size
        #: order of submission
        self.number = number
        self.codes = bytearray(bytes([PENDING]) * job.size)
        self.attempts = bytearray(job.size)
        self.counts = [0] * len(STATES)
        self.counts[PENDING] = job.size
        #: RUNNABLE children in order; readers skip children whose state has changed since
        self.ready = ReadyChildren()
        #: whether the job is in its queue's waiting line
        self.is_in_line = False
        self.placed: dict[int, Placement] = {}
        #: how many children may start one after the other in the same room
        self.series_length = 1
        #: placed child that is being stopped -> reason
        self.stopping: dict[int, str] = {}
        #: dependencies of the whole job that have not succeeded yet
        self.unmet = 0
        #: child -> number of children it still waits for; None if no child waits for another
        self.blockers: array[int] | None = None
        self.is_sequential = False
        #: jobs that wait for this whole job
        self.followers: list[TrackedJob] = []
        #: child of this job -> jobs that wait for it
        self.child_followers: dict[int, list[TrackedJob]] = {}
        #: jobs of which single children wait for single children of this job, with the pairs of
        #: the dependency; without pairs, child i waits for child i
        self.pair_followers: list[tuple[TrackedJob, Sequence[int] | None]] = []
        #: why the whole job failed; empty if only children did
        self.reason = ""
        #: cancelled child (None: all) -> reason with which it fails when its dependencies are met
        self.cancelled: dict[int | None, str] = {}
        #: whether JobSettled has been returned for this job
        self.is_settled = False

    def move(self, index: int, code: int) -> None:
        self.counts[self.codes[index]] -= 1
        self.counts[code] += 1
        self.codes[index] = code

    def is_waiting_follower(self, index: int) -> bool:
        """Return whether a child has a place in a series, and has not started."""
        return self.codes[index] == STARTING and self.placed[index].first_child != index

    def visible_code(self, index: int) -> int:
        """Return the state of a child. A follower that has not started is RUNNABLE."""
        return RUNNABLE if self.is_waiting_follower(index) else self.codes[index]

    def visible_counts(self) -> tuple[int, ...]:
        """Return the number of children in each state."""
        counts = list(self.counts)
        if counts[STARTING]:
            waiting = sum(map(self.is_waiting_follower, self.placed))
            counts[STARTING] -= waiting
            counts[RUNNABLE] += waiting
        return tuple(counts)

    def block(self, index: int) -> None:
        if self.blockers is None:
            self.blockers = array("L", [0]) * self.job.size
        self.blockers[index] += 1

    def find_waiting(self, child: int) -> list[tuple[TrackedJob, int]]:
        """Return (job, child) of the children of other jobs that wait for this child."""
        return [
            (follower, child if pairs is None else pairs[child])
            for follower, pairs in self.pair_followers
            if pairs is None or pairs[child] != NOBODY
        ]

    def release(self) -> bool:
        """Make RUNNABLE every child that waits for no other child; return whether there are any.

        Called when the dependencies of the whole job are met.
        """
        if self.blockers is None and self.counts[PENDING] == self.job.size:
            self.codes = bytearray(bytes([RUNNABLE]) * self.job.size)
            self.counts[PENDING], self.counts[RUNNABLE] = 0, self.job.size
            self.ready.set_order(self._start_order)
        else:
            for index in self._start_order:
                if self.codes[index] == PENDING and not (self.blockers and self.blockers[index]):
                    self.make_runnable(index)
        return bool(self.ready)

    @property
    def _start_order(self) -> Sequence[int]:
        return range(self.job.size) if self.job.start_order is None else self.job.start_order

    def make_runnable(self, index: int) -> None:
        self.move(index, RUNNABLE)
        self.ready.append(index)

    def unblock(self, index: int) -> bool:
        """Record that one of the children that a child waits for has succeeded.

        Returns whether the waiting child became RUNNABLE.
        """
        assert self.blockers is not None
        self.blockers[index] -= 1
        if self.blockers[index] or self.unmet or self.codes[index] != PENDING:
            return False
        self.make_runnable(index)
        return True

    def fail_unplaced(self) -> list[int]:
        """Fail every child that was not placed yet; return them if other arrays wait for them."""
        unplaced = (
            [index for index, code in enumerate(self.codes) if code <= RUNNABLE]
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
        return self.counts[SUCCEEDED] + self.counts[FAILED] == self.size

    @property
    def state(self) -> JobState:
        """The state of the job itself. An array is PENDING until all its children have ended."""
        if self.is_over:
            return JobState.FAILED if self.counts[FAILED] else JobState.SUCCEEDED
        if self.job.array_size is not None:
            return JobState.PENDING
        return STATES[self.codes[0]]

    def status_reason(self, child_reason: str) -> str:
        """Return the status reason of the whole job, given that of its last child."""
        if self.reason:
            return self.reason
        if self.job.array_size is None:
            return child_reason
        if not self.counts[FAILED]:
            return ""
        return self.cancelled.get(None, StatusReason.CHILD_FAILED)
