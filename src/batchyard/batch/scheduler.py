"""The scheduler: AWS Batch's life of a job (facts, 1, 2 and 7). Events in, changes out. Pure.

The scheduler knows no process, no disk and no clock: events bring their times. An engine's loop
reports events (``submit``, ``attempt_started``, ``attempt_ended``, ``terminate``, ``tick``), asks
what to start (``place``), and performs the changes that these methods return. The same events in
the same order always give the same changes, so that a run can be resumed.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count, islice

from batchyard.batch import retry
from batchyard.batch.blocked import reason_code
from batchyard.batch.capacity import Consumables, FreeCapacity
from batchyard.batch.changes import (
    Change,
    JobSettled,
    JobSummary,
    Requeued,
    RestFailed,
    Settled,
    Start,
    Stop,
)
from batchyard.batch.dependencies import InvalidJobError, resolve_dependency
from batchyard.batch.fleets import Fleet, Host
from batchyard.batch.jobs import (
    NOBODY,
    Action,
    DependencyType,
    Job,
    JobState,
    Outcome,
    Resources,
    StatusReason,
)
from batchyard.batch.placement import PlacementPass, WaitingLine
from batchyard.batch.queues import QUEUE_DELETED, TIME_LIMIT, ComputeEnvironment, Queue
from batchyard.batch.tracked_job import FAILED, RUNNABLE, RUNNING, STATES, SUCCEEDED, TrackedJob

#: deadlines above this number are searched for those of ended attempts
_MIN_DEADLINES_BOUND = 1000


class Scheduler:
    def __init__(
        self,
        queues: Iterable[Queue],
        environments: Iterable[ComputeEnvironment],
        consumables: Mapping[str, int] | None = None,
        *,
        machine: Resources | None = None,
        fail_fast: bool = False,
        new_host_id: Callable[[], str] | None = None,
    ) -> None:
        """``machine``: capacity that all environments share; None if each has its own.

        ``fail_fast``: fail all jobs when the first child fails. ``new_host_id`` makes the ids of
        instances; by default they are numbered.
        """
        numbers = count()
        self._new_host_id = new_host_id or (lambda: f"host-{next(numbers)}")
        self._machine = FreeCapacity(ComputeEnvironment("machine", machine)) if machine else None
        self._capacities: dict[str, FreeCapacity | Fleet] = {}
        #: queue -> its waiting line, by falling priority
        self._lines: dict[str, WaitingLine] = {}
        #: time of the latest ``tick``
        self._now_ms = 0
        for environment in environments:
            self.set_environment(environment)
        for queue in queues:
            self.set_queue(queue)
        self._consumables = Consumables(dict(consumables or {}))
        self._jobs: dict[str, TrackedJob] = {}
        self._unsettled = 0
        self._fail_fast = fail_fast
        #: (waiting job, whether its parent succeeded), worked off by a loop: chains can be long
        self._ended_parents: deque[tuple[TrackedJob, bool]] = deque()
        #: heap of (deadline in ms, job, child, attempt)
        self._deadlines: list[tuple[int, str, int, int]] = []
        self._deadlines_bound = _MIN_DEADLINES_BOUND

    # -- events ------------------------------------------------------------------------------------

    def check(self, job: Job) -> list[tuple[TrackedJob, int | None] | None]:
        """Return what each dependency of a new job refers to. Raises InvalidJobError."""
        line = self._lines.get(job.queue)
        if line is None:
            raise InvalidJobError(f"no queue is named {job.queue!r}")
        if not line.queue.is_enabled:
            raise InvalidJobError(f"queue {job.queue!r} is disabled")
        if job.id in self._jobs:
            raise InvalidJobError(f"job {job.id} was submitted before")
        if job.size < 1:
            raise InvalidJobError(
                f"{job.name!r} has {job.size} children, and a job needs at least one"
            )
        return [resolve_dependency(self._jobs, job, dependency) for dependency in job.depends_on]

    def submit(self, job: Job) -> list[Change]:
        """Accept a new job. Raises InvalidJobError.

        The job can depend on jobs that were submitted earlier, in whatever state they are.
        """
        targets = self.check(job)
        tracked = TrackedJob(job, number=len(self._jobs))
        self._jobs[job.id] = tracked
        self._unsettled += 1
        changes: list[Change] = []
        is_doomed = False
        # SEQUENTIAL comes first: if another dependency fails a child, the later children fail too.
        if None in targets:
            tracked.is_sequential = True
            for index in range(1, job.size):
                tracked.block(index)
        for dependency, target in zip(job.depends_on, targets, strict=True):
            if target is None:
                continue
            if dependency.type is DependencyType.N_TO_N:
                self._wait_child_by_child(tracked, target[0], dependency.pairs, changes)
            else:
                is_doomed |= self._wait_for(tracked, *target)
        if is_doomed:
            self._fail_all(tracked, StatusReason.DEPENDENCY_FAILED, changes)
        elif not tracked.unmet and tracked.release():
            self._lines[job.queue].add(tracked)
        return self._notify_followers(changes)

    def attempt_started(self, job_id: str, index: int, now_ms: int) -> None:
        """Record that the process or container of a placed child runs; its timeout begins."""
        tracked = self._jobs[job_id]
        tracked.move(index, RUNNING)
        if tracked.job.timeout_s is not None:
            due_ms = now_ms + tracked.job.timeout_s * 1000
            heapq.heappush(self._deadlines, (due_ms, job_id, index, tracked.attempts[index]))
            if len(self._deadlines) > self._deadlines_bound:
                self._drop_old_deadlines()

    def _drop_old_deadlines(self) -> None:
        """Remove the deadlines of ended attempts: an array can leave a million of them."""
        deadlines = [deadline for deadline in self._deadlines if self._is_running(*deadline[1:])]
        heapq.heapify(deadlines)
        self._deadlines = deadlines
        self._deadlines_bound = max(_MIN_DEADLINES_BOUND, 2 * len(deadlines))

    def _is_running(self, job_id: str, index: int, attempt: int) -> bool:
        tracked = self._jobs[job_id]
        return index in tracked.placed and tracked.attempts[index] == attempt

    def attempt_ended(self, job_id: str, index: int, outcome: Outcome) -> list[Change]:
        """Record that a placed child exited, was stopped, or did not come to run."""
        tracked = self._jobs[job_id]
        attempt = tracked.attempts[index]
        self._leave_room(tracked, index)
        stop_reason = tracked.stopping.pop(index, None)
        changes: list[Change] = []
        if stop_reason is not None:
            # A stopped or timed-out child is never retried, and fails even with exit code 0.
            self._settle(tracked, index, FAILED, stop_reason, attempt, changes)
        elif outcome.exit_code == 0:
            self._settle(tracked, index, SUCCEEDED, outcome.status_reason, attempt, changes)
        elif (
            not tracked.reason and retry.decide(tracked.job.retry, attempt, outcome) is Action.RETRY
        ):
            tracked.move(index, RUNNABLE)
            self._lines[tracked.job.queue].retries.append((tracked, index))
            changes.append(Requeued(job_id, index, attempt))
        else:
            self._settle(tracked, index, FAILED, outcome.status_reason, attempt, changes)
        return self._notify_followers(changes) if self._ended_parents else changes

    def allow_series(self, job_id: str, length: int) -> None:
        """Let so many children of a job start one after the other in the same room.

        ``place`` then returns followers, which need no call of ``place`` between their attempts.
        There are none in queues with fair shares, nor in jobs that use up consumable resources.
        """
        self._jobs[job_id].series_length = length

    def withdraw(self, job_id: str, index: int) -> list[Change]:
        """Record that a follower was not started: it waits again, ahead of the children behind it.

        Call it for the last follower of a series first.
        """
        tracked = self._jobs[job_id]
        self._leave_room(tracked, index)
        tracked.attempts[index] -= 1
        tracked.move(index, RUNNABLE)
        reason = tracked.stopping.pop(index, None) or tracked.cancellation(index) or tracked.reason
        changes: list[Change] = []
        if reason:
            self._settle(tracked, index, FAILED, reason, 0, changes)
        else:
            tracked.ready.put_first(index)
            self._lines[tracked.job.queue].add(tracked)
        return self._notify_followers(changes)

    def _leave_room(self, tracked: TrackedJob, index: int) -> None:
        """Give back what a placed child held, unless others of its series still hold it."""
        placement = tracked.placed.pop(index)
        placement.children -= 1
        if placement.children:
            return
        job = tracked.job
        placement.room.give_back(job.resources, placement.gpus)
        if job.consumables:
            self._consumables.give_back(job.consumables)
        usage = self._lines[job.queue].usage
        if usage is not None:
            usage.change(job.share, -job.resources.vcpus, self._now_ms)

    def terminate(self, job_id: str, reason: str, index: int | None = None) -> list[Change]:
        """Perform TerminateJob on a job, with all its children, or on one child.

        Children that have ended keep their state.
        """
        tracked = self._jobs[job_id]
        changes: list[Change] = []
        if index is None:
            self._fail_all(tracked, reason, changes)
        elif tracked.codes[index] <= RUNNABLE:
            self._settle(tracked, index, FAILED, reason, 0, changes)
        elif index in tracked.placed and index not in tracked.stopping:
            tracked.stopping[index] = reason
            changes.append(Stop(job_id, index))
        return self._notify_followers(changes)

    def cancel(self, job_id: str, reason: str, index: int | None = None) -> list[Change]:
        """Perform CancelJob on a job or on one child.

        RUNNABLE children fail now, PENDING ones when their dependencies have ended; running
        children go on. A follower that is RUNNABLE to clients is stopped.
        """
        tracked = self._jobs[job_id]
        tracked.cancelled.setdefault(index, reason)
        changes: list[Change] = []
        for child in range(tracked.job.size) if index is None else [index]:
            if tracked.codes[child] == RUNNABLE:
                self._settle(tracked, child, FAILED, reason, 0, changes)
            elif tracked.is_waiting_follower(child) and child not in tracked.stopping:
                tracked.stopping[child] = reason
                changes.append(Stop(job_id, child))
        return self._notify_followers(changes)

    def hold(self, job_id: str, reason: str) -> list[Change]:
        """Let no further child of a job start, also none that is tried again. Placed ones go on."""
        changes: list[Change] = []
        self._fail_all(self._jobs[job_id], reason, changes, stops_placed=False)
        return self._notify_followers(changes)

    def set_environment(self, environment: ComputeEnvironment) -> None:
        """Add a compute environment, or change the one of this name."""
        capacity = self._capacities.get(environment.name)
        if capacity is not None:
            capacity.resize(environment)
        elif environment.fleet is None:
            self._capacities[environment.name] = FreeCapacity(environment, self._machine)
        else:
            fleet = Fleet(environment, self._machine, self._new_host_id)
            self._capacities[environment.name] = fleet
            fleet.tick(self._now_ms)

    def remove_environment(self, name: str) -> None:
        """Forget a compute environment that no queue uses; its children run to their end."""
        capacity = self._capacities.pop(name)
        if isinstance(capacity, Fleet):
            for host in list(capacity.hosts):
                capacity.end(host)

    def set_queue(self, queue: Queue) -> None:
        """Add a queue, or change the one of this name. Its environments must exist."""
        line = self._lines.get(queue.name)
        capacities = [self._capacities[name] for name in queue.environments]
        if line is None:
            self._lines[queue.name] = WaitingLine(queue, capacities)
        else:
            line.set_queue(queue, capacities)
        self._lines = dict(sorted(self._lines.items(), key=lambda item: -item[1].queue.priority))

    def has_queue(self, name: str) -> bool:
        return name in self._lines

    def delete_queue(self, name: str) -> list[Change]:
        """Disable a queue and fail all jobs in it."""
        line = self._lines[name]
        line.queue = replace(line.queue, is_enabled=False)
        changes: list[Change] = []
        for tracked in list(self._jobs.values()):
            if tracked.job.queue == name:
                self._fail_all(tracked, QUEUE_DELETED, changes)
        return self._notify_followers(changes)

    def tick(self, now_ms: int) -> list[Change]:
        """Record the time: stop children after their timeout, and apply the queues' time limits."""
        self._now_ms = now_ms
        for fleet in self.fleets():
            fleet.tick(now_ms)
        changes: list[Change] = []
        machine = self._machine.environment.capacity if self._machine else None
        for line in self._lines.values():
            expired = line.check_head(machine, now_ms)
            if expired is not None:
                reason = TIME_LIMIT + reason_code(expired.reason)
                self._settle(expired.tracked, expired.child, FAILED, reason, 0, changes)
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, job_id, index, attempt = heapq.heappop(self._deadlines)
            tracked = self._jobs[job_id]
            if self._is_running(job_id, index, attempt) and index not in tracked.stopping:
                tracked.stopping[index] = StatusReason.TIMEOUT
                changes.append(Stop(job_id, index))
        return self._notify_followers(changes)

    def restore(
        self, job_id: str, index: int, attempts: int, state: JobState | None, reason: str
    ) -> list[Change]:
        """Restore what an earlier process recorded of a child.

        Call it after ``submit`` and before the first ``place``, for all jobs before one of them is
        terminated again: with fail_fast, that fails children whose success is not yet restored.
        ``state`` None: all attempts so far have failed, and the child is tried again. Returns the
        changes that follow, some of which the earlier process may not have recorded.
        """
        tracked = self._jobs[job_id]
        tracked.attempts[index] = max(tracked.attempts[index], attempts)
        if state is not None:
            code = SUCCEEDED if state is JobState.SUCCEEDED else FAILED
            # Children that fail_fast failed have records of their own. To fail them here would lose
            # successes that are restored later.
            fail_fast, self._fail_fast = self._fail_fast, False
            changes: list[Change] = []
            self._settle(tracked, index, code, reason, attempts, changes)
            self._notify_followers(changes)
            self._fail_fast = fail_fast
            return changes[1:]
        return []

    # -- placement ---------------------------------------------------------------------------------

    def adopt(self, attempts: Iterable[tuple[str, int, int]]) -> list[Start]:
        """Place children whose attempts of an earlier process still run, ahead of all others.

        ``attempts``: job, child and number of each attempt; those that are not the next one of
        their child are ignored. Call it after ``restore``, and before the first ``place``.
        """
        for job_id, index, attempt in attempts:
            tracked = self._jobs[job_id]
            if tracked.codes[index] == RUNNABLE and tracked.attempts[index] + 1 == attempt:
                self._lines[tracked.job.queue].retries.append((tracked, index))
        starts: list[Start] = []
        for line in self._lines.values():
            PlacementPass(line, self._consumables, starts, self._now_ms).place_retries()
        return starts

    def place(self) -> list[Start]:
        """Return what to start now, in order. Its capacity is taken from now on."""
        starts: list[Start] = []
        for line in self._lines.values():
            while line.retries or line.jobs:
                PlacementPass(line, self._consumables, starts, self._now_ms).run()
                if not line.launch_hosts(self._consumables, self._machine, self._now_ms):
                    break
        return starts

    # -- state -------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self._unsettled == 0

    def summary(self, job_id: str) -> JobSummary:
        tracked = self._jobs[job_id]
        return JobSummary(job_id, tracked.state, tracked.visible_counts())

    def child_state(self, job_id: str, index: int) -> JobState:
        """Return the state of a child; a follower that has not started is RUNNABLE."""
        return STATES[self._jobs[job_id].visible_code(index)]

    def free(self, environment: str) -> Resources:
        """Return the free capacity of an environment without instances."""
        capacity = self._capacities[environment]
        assert isinstance(capacity, FreeCapacity), f"{environment} has instances"
        return capacity.free

    def fleets(self) -> list[Fleet]:
        """Return the instances of each compute environment that has some."""
        return [fleet for fleet in self._capacities.values() if isinstance(fleet, Fleet)]

    def fleet(self, environment: str) -> Fleet | None:
        capacity = self._capacities.get(environment)
        return capacity if isinstance(capacity, Fleet) else None

    def host_of(self, job_id: str, index: int) -> Host | None:
        """Return the instance on which a placed child runs, if its environment has instances."""
        placement = self._jobs[job_id].placed.get(index) if job_id in self._jobs else None
        return placement.room if placement and isinstance(placement.room, Host) else None

    def children_on(self, host: Host) -> list[tuple[str, int]]:
        """Return (job, child) of the children that run on an instance, or are to follow there."""
        return [
            (job_id, index)
            for job_id, tracked in self._jobs.items()
            for index, placement in tracked.placed.items()
            if placement.room is host
        ]

    def blocked_head(self, queue: str) -> tuple[str, int, str] | None:
        """Return (job, child, reason) of the child that blocks the queue, as of the last tick."""
        head = self._lines[queue].blocked_head
        return None if head is None else (head.tracked.job.id, head.child, head.reason)

    def front_of(self, queue: str, at_most: int) -> list[tuple[str, int]]:
        """Return the next RUNNABLE children, in the order in which they would start now."""
        children = self._lines[queue].runnable_children(self._now_ms)
        return [(tracked.job.id, index) for tracked, index in islice(children, at_most)]

    def change_consumable(self, name: str, by: int, *, is_replenishable: bool = True) -> None:
        self._consumables.change(name, by, is_replenishable=is_replenishable)

    def free_consumable(self, name: str) -> int:
        return self._consumables.free(name)

    def placed_children(self) -> list[tuple[str, int]]:
        """Return (job, child) of the children that hold capacity now, without waiting followers."""
        return [
            (job_id, index)
            for job_id, tracked in self._jobs.items()
            for index in tracked.placed
            if not tracked.is_waiting_follower(index)
        ]

    # -- dependencies ------------------------------------------------------------------------------

    def _wait_for(self, tracked: TrackedJob, target: TrackedJob, child: int | None) -> bool:
        """Make a whole job wait for another job or child; return whether that one has failed."""
        state = target.state if child is None else STATES[target.codes[child]]
        if state is JobState.FAILED:
            return True
        if state is not JobState.SUCCEEDED:
            tracked.unmet += 1
            if child is None:
                target.followers.append(tracked)
            else:
                target.child_followers.setdefault(child, []).append(tracked)
        return False

    def _wait_child_by_child(
        self,
        tracked: TrackedJob,
        target: TrackedJob,
        pairs: Sequence[int] | None,
        changes: list[Change],
    ) -> None:
        """Make each child of a job wait for its child of another job; see ``Dependency.pairs``."""
        target.pair_followers.append((tracked, pairs))
        for index, code in zip(
            range(target.size) if pairs is None else pairs, target.codes, strict=True
        ):
            if index == NOBODY:
                continue
            if code == FAILED:
                self._settle(tracked, index, FAILED, StatusReason.DEPENDENCY_FAILED, 0, changes)
            elif code != SUCCEEDED:
                tracked.block(index)

    # -- ends of children and jobs, and their consequences -----------------------------------------

    def _settle(
        self,
        tracked: TrackedJob,
        index: int,
        code: int,
        reason: str,
        attempt: int,
        changes: list[Change],
    ) -> None:
        """End a child and everything that its end brings about.

        A work list instead of recursion, as a cascade can be 10,000 children long.
        """
        todo = [(tracked, index, code, reason, attempt)]
        while todo:
            job, child, code, reason, attempt = todo.pop()
            if job.codes[child] >= SUCCEEDED:
                continue
            job.move(child, code)
            changes.append(Settled(job.job.id, child, attempt, STATES[code], reason))
            if job.pair_followers or job.is_sequential:
                for follower, its_child, fail_reason in self._release_children(job, child, code):
                    todo.append((follower, its_child, FAILED, fail_reason, 0))
            if job.child_followers:
                for follower in job.child_followers.pop(child, ()):
                    self._ended_parents.append((follower, code == SUCCEEDED))
            if job.is_over:
                self._settle_job(job, reason, changes)
            if code == FAILED and self._fail_fast:
                self._fail_fast = False
                self._fail_everything(f"fail_fast: {job.job.name} failed", changes)

    def _release_children(
        self, job: TrackedJob, child: int, code: int
    ) -> list[tuple[TrackedJob, int, str]]:
        """Release the children that waited for this child; return those that fail, with reasons."""
        waiting = job.find_waiting(child)
        if job.is_sequential and child + 1 < job.job.size:
            waiting.append((job, child + 1))
        if code == FAILED:
            return [
                (follower, index, StatusReason.DEPENDENCY_FAILED) for follower, index in waiting
            ]
        failing = []
        for follower, index in waiting:
            if not follower.unblock(index):
                continue
            cancel_reason = follower.cancellation(index)
            if cancel_reason is None:
                self._lines[follower.job.queue].add(follower)
            else:
                failing.append((follower, index, cancel_reason))
        return failing

    def _settle_job(self, tracked: TrackedJob, child_reason: str, changes: list[Change]) -> None:
        if tracked.is_settled:
            return
        tracked.is_settled = True
        self._unsettled -= 1
        state = tracked.state
        changes.append(JobSettled(tracked.job.id, state, tracked.status_reason(child_reason)))
        self._ended_parents.extend(
            (follower, state is JobState.SUCCEEDED) for follower in tracked.followers
        )

    def _notify_followers(self, changes: list[Change]) -> list[Change]:
        while self._ended_parents:
            follower, succeeded = self._ended_parents.popleft()
            if not succeeded:
                self._fail_all(follower, StatusReason.DEPENDENCY_FAILED, changes)
                continue
            follower.unmet -= 1
            if not follower.unmet and not follower.is_settled and follower.release():
                self._lines[follower.job.queue].add(follower)
                self._fail_cancelled(follower, changes)
        return changes

    def _fail_cancelled(self, tracked: TrackedJob, changes: list[Change]) -> None:
        """Fail the children that were cancelled while their job waited for its dependencies."""
        if tracked.cancelled:
            for index in [index for index in tracked.ready if tracked.codes[index] == RUNNABLE]:
                reason = tracked.cancellation(index)
                if reason is not None:
                    self._settle(tracked, index, FAILED, reason, 0, changes)

    def _fail_all(
        self,
        tracked: TrackedJob,
        reason: str,
        changes: list[Change],
        *,
        stops_placed: bool = True,
    ) -> None:
        """Fail the children that were not placed, and stop the placed ones; each only once."""
        if tracked.is_settled:
            return
        unplaced: list[int] = []
        if not tracked.reason:
            tracked.reason = reason
            unplaced = tracked.fail_unplaced()
            changes.append(RestFailed(tracked.job.id, reason))
        for index in tracked.placed if stops_placed else ():
            if index not in tracked.stopping:
                tracked.stopping[index] = reason
                changes.append(Stop(tracked.job.id, index))
        self._fail_followers(tracked, unplaced, changes)
        if tracked.is_over:
            self._settle_job(tracked, reason, changes)

    def _fail_followers(
        self, tracked: TrackedJob, failed: list[int], changes: list[Change]
    ) -> None:
        """Fail what waits for single children of a job. ``failed``: the ones that just failed."""
        for child in failed:
            for follower, index in tracked.find_waiting(child):
                self._settle(follower, index, FAILED, StatusReason.DEPENDENCY_FAILED, 0, changes)
        for index in [index for index in tracked.child_followers if tracked.codes[index] == FAILED]:
            followers = tracked.child_followers.pop(index)
            self._ended_parents.extend((follower, False) for follower in followers)

    def _fail_everything(self, reason: str, changes: list[Change]) -> None:
        # Last submitted first, so that a follower fails for this reason and not for its parent's.
        for tracked in reversed(list(self._jobs.values())):
            self._fail_all(tracked, reason, changes)
