"""The scheduler: events in, changes out. AWS Batch's life of a job (facts, 1, 2 and 7), and nothing else.

It knows no process, no disk and no clock: times come in with the events. An engine's loop tells it what happened
(``submit``, ``started``, ``ended``, ``terminate``, ``tick``), asks it what to start (``place``), and performs what it
answers. The same events in the same order always give the same answers, which is what makes a run resumable.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice

from batchyard.batch import blocked, dependencies, retry
from batchyard.batch.capacity import Consumables, Room
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
from batchyard.batch.dependencies import InvalidJob
from batchyard.batch.jobs import (
    Action,
    DependencyType,
    Job,
    JobState,
    Outcome,
    Resources,
    StatusReason,
)
from batchyard.batch.lines import Line, Pass
from batchyard.batch.queues import QUEUE_DELETED, TIME_LIMIT, ComputeEnvironment, Queue
from batchyard.batch.tracking import FAILED, RUNNABLE, RUNNING, STATES, SUCCEEDED, TrackedJob


class Scheduler:
    def __init__(
        self,
        queues: Iterable[Queue],
        environments: Iterable[ComputeEnvironment],
        consumables: Mapping[str, int] | None = None,
        *,
        machine: Resources | None = None,
        fail_fast: bool = False,
    ) -> None:
        """``machine``: what all environments share, where they are pretended on one."""
        self._machine = Room(ComputeEnvironment("machine", machine)) if machine else None
        self._rooms: dict[str, Room] = {}
        self._lines: dict[str, Line] = {}
        #: the latest time that an event came with
        self._now_ms = 0
        for environment in environments:
            self.set_environment(environment)
        for queue in queues:
            self.set_queue(queue)
        self._consumables = Consumables(dict(consumables or {}))
        self._jobs: dict[str, TrackedJob] = {}
        self._unsettled = 0
        self._fail_fast = fail_fast
        #: (job that waited, whether what it waited for succeeded): spread by a loop, as a chain of jobs can be long
        self._news: deque[tuple[TrackedJob, bool]] = deque()
        #: (when it is due, job, child, attempt)
        self._deadlines: list[tuple[int, str, int, int]] = []
        #: at more than this it is looked through
        self._deadlines_bound = 1000

    # -- events ---------------------------------------------------------------------------------------------

    def check(self, job: Job) -> list[tuple[TrackedJob, int | None] | None]:
        """Raises InvalidJob where ``submit`` would; else what its dependencies are about."""
        line = self._lines.get(job.queue)
        if line is None:
            raise InvalidJob(f"no queue is named {job.queue!r}")
        if not line.queue.is_enabled:
            raise InvalidJob(f"queue {job.queue!r} is disabled")
        if job.id in self._jobs:
            raise InvalidJob(f"job {job.id} was submitted before")
        if job.size < 1:
            raise InvalidJob(f"{job.name!r} has {job.size} children, and a job needs at least one")
        return [dependencies.target(self._jobs, job, dep) for dep in job.depends_on]

    def submit(self, job: Job) -> list[Change]:
        """A new job. It may depend on jobs that were submitted before it, whatever their state now."""
        targets = self.check(job)
        tracked = TrackedJob(job, number=len(self._jobs))
        self._jobs[job.id] = tracked
        self._unsettled += 1
        changes: list[Change] = []
        is_doomed = False
        # Before all others: a child that one of them fails at once takes those after it along.
        if None in targets:
            tracked.is_sequential = True
            for index in range(1, job.size):
                tracked.block(index)
        for dependency, target in zip(job.depends_on, targets, strict=True):
            if target is None:
                continue
            if dependency.type is DependencyType.N_TO_N:
                self._pair(tracked, target[0], changes)
            else:
                is_doomed |= self._wait_for(tracked, *target)
        if is_doomed:
            self._fail_all(tracked, StatusReason.DEPENDENCY_FAILED, changes)
        elif not tracked.unmet and tracked.release():
            self._lines[job.queue].add(tracked)
        return self._spread_news(changes)

    def started(self, job_id: str, index: int, now_ms: int) -> None:
        """The attempt's process or container runs: its timeout counts from here."""
        tracked = self._jobs[job_id]
        tracked.move(index, RUNNING)
        if tracked.job.timeout_s is not None:
            due_ms = now_ms + tracked.job.timeout_s * 1000
            heapq.heappush(self._deadlines, (due_ms, job_id, index, tracked.attempts[index]))
            if len(self._deadlines) > self._deadlines_bound:
                self._drop_past_deadlines()

    def _drop_past_deadlines(self) -> None:
        """Those of attempts that have ended since: an array of a million would leave a million of them."""
        kept = [entry for entry in self._deadlines if self._is_under_way(*entry[1:])]
        heapq.heapify(kept)
        self._deadlines = kept
        self._deadlines_bound = max(1000, 2 * len(kept))

    def _is_under_way(self, job_id: str, index: int, attempt: int) -> bool:
        tracked = self._jobs[job_id]
        return index in tracked.placed and tracked.attempts[index] == attempt

    def ended(self, job_id: str, index: int, outcome: Outcome) -> list[Change]:
        """A placed attempt is over, however: it exited, was stopped, or never came to run."""
        tracked = self._jobs[job_id]
        attempt = tracked.attempts[index]
        placement = tracked.placed.pop(index)
        placement.room.give_back(tracked.job.resources, placement.gpus)
        if tracked.job.consumables:
            self._consumables.give_back(tracked.job.consumables)
        use = self._lines[tracked.job.queue].use
        if use is not None:
            use.change(tracked.job.share, -tracked.job.resources.vcpus, self._now_ms)
        stop_reason = tracked.stopping.pop(index, None)
        changes: list[Change] = []
        if stop_reason is not None:
            # Stopped and timed-out children are never retried, and have failed even if they managed an exit 0.
            self._settle(tracked, index, FAILED, stop_reason, attempt, changes)
        elif outcome.exit_code == 0:
            self._settle(tracked, index, SUCCEEDED, outcome.status_reason, attempt, changes)
        elif retry.decide(tracked.job.retry, attempt, outcome) is Action.RETRY:
            tracked.move(index, RUNNABLE)
            self._lines[tracked.job.queue].front.append((tracked, index))
            changes.append(Requeued(job_id, index, attempt))
        else:
            self._settle(tracked, index, FAILED, outcome.status_reason, attempt, changes)
        return self._spread_news(changes)

    def terminate(self, job_id: str, reason: str, index: int | None = None) -> list[Change]:
        """TerminateJob on a job, an array with all its children, or one child. What is over stays as it is."""
        tracked = self._jobs[job_id]
        changes: list[Change] = []
        if index is None:
            self._fail_all(tracked, reason, changes)
        elif tracked.codes[index] <= RUNNABLE:
            self._settle(tracked, index, FAILED, reason, 0, changes)
        elif index in tracked.placed and index not in tracked.stopping:
            tracked.stopping[index] = reason
            changes.append(Stop(job_id, index))
        return self._spread_news(changes)

    def cancel(self, job_id: str, reason: str, index: int | None = None) -> list[Change]:
        """CancelJob: what waits for capacity fails now, what waits for other jobs fails when they have ended, what runs
        goes on."""
        tracked = self._jobs[job_id]
        tracked.cancelled.setdefault(index, reason)
        changes: list[Change] = []
        for child in range(tracked.job.size) if index is None else [index]:
            if tracked.codes[child] == RUNNABLE:
                self._settle(tracked, child, FAILED, reason, 0, changes)
        return self._spread_news(changes)

    def set_environment(self, environment: ComputeEnvironment) -> None:
        """A new compute environment, or an old one as it is to be from now on."""
        room = self._rooms.get(environment.name)
        if room is None:
            self._rooms[environment.name] = Room(environment, self._machine)
        else:
            room.resize(environment)

    def set_queue(self, queue: Queue) -> None:
        """A new queue, or an old one as it is to be from now on; its environments must be there."""
        line = self._lines.get(queue.name)
        rooms = [self._rooms[name] for name in queue.environments]
        if line is None:
            self._lines[queue.name] = Line(queue, rooms)
        else:
            line.change(queue, rooms)
        self._lines = dict(sorted(self._lines.items(), key=lambda item: -item[1].queue.priority))

    def delete_queue(self, name: str) -> list[Change]:
        """What is in the queue fails; the queue takes nothing more."""
        line = self._lines[name]
        line.queue = replace(line.queue, is_enabled=False)
        changes: list[Change] = []
        for tracked in list(self._jobs.values()):
            if tracked.job.queue == name:
                self._fail_all(tracked, QUEUE_DELETED, changes)
        return self._spread_news(changes)

    def tick(self, now_ms: int) -> list[Change]:
        """Time has passed: children that ran longer than their timeout are stopped, and jobs that have been blocked at
        the head of a queue for longer than it allows are cancelled."""
        self._now_ms = now_ms
        changes: list[Change] = []
        machine = self._machine.environment.capacity if self._machine else None
        for line in self._lines.values():
            expired = line.look_at_head(machine, now_ms)
            if expired is not None:
                self._settle(
                    expired.tracked,
                    expired.child,
                    FAILED,
                    TIME_LIMIT + blocked.code(expired.reason),
                    0,
                    changes,
                )
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, job_id, index, attempt = heapq.heappop(self._deadlines)
            tracked = self._jobs[job_id]
            if self._is_under_way(job_id, index, attempt) and index not in tracked.stopping:
                tracked.stopping[index] = StatusReason.TIMEOUT
                changes.append(Stop(job_id, index))
        return self._spread_news(changes)

    def restore(
        self, job_id: str, index: int, attempts: int, state: JobState | None, reason: str
    ) -> list[Change]:
        """What an earlier process recorded of a child; call it after the submits and before the first ``place``.

        ``state`` None: its attempts so far have failed and it is to be tried again. Returns what follows from it, some
        of which the earlier process may have had no time to record.
        """
        tracked = self._jobs[job_id]
        tracked.attempts[index] = max(tracked.attempts[index], attempts)
        if state is not None:
            code = SUCCEEDED if state is JobState.SUCCEEDED else FAILED
            # What fail_fast failed has records of its own; failing it here would forget successes yet to be restored.
            fail_fast, self._fail_fast = self._fail_fast, False
            changes: list[Change] = []
            self._settle(tracked, index, code, reason, attempts, changes)
            self._spread_news(changes)
            self._fail_fast = fail_fast
            return changes[1:]
        return []

    # -- what to do next ------------------------------------------------------------------------------------

    def place(self) -> list[Start]:
        """What to start now, best first. The capacity counts as taken from here on."""
        starts: list[Start] = []
        for line in self._lines.values():
            if line.front or line.jobs:
                Pass(line, self._consumables, starts, self._now_ms).run()
        return starts

    # -- what is so -----------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self._unsettled == 0

    def summary(self, job_id: str) -> JobSummary:
        tracked = self._jobs[job_id]
        return JobSummary(job_id, tracked.state, tuple(tracked.counts))

    def child_state(self, job_id: str, index: int) -> JobState:
        return STATES[self._jobs[job_id].codes[index]]

    def free(self, environment: str) -> Resources:
        room = self._rooms[environment]
        return Resources(room.free_vcpus, room.free_memory_mib, len(room.free_gpus))

    def blocked_head(self, queue: str) -> tuple[str, int, str] | None:
        """(job, child, AWS's reason) of the child that blocks the queue, as of the last tick."""
        found = self._lines[queue].blocked
        return None if found is None else (found.tracked.job.id, found.child, found.reason)

    def front_of(self, queue: str, at_most: int) -> list[tuple[str, int]]:
        """The RUNNABLE children that are next, in the order in which they would start now."""
        return [
            (tracked.job.id, index)
            for tracked, index in islice(self._lines[queue].waiting(self._now_ms), at_most)
        ]

    def change_consumable(self, name: str, by: int, *, is_replenishable: bool = True) -> None:
        self._consumables.change(name, by, is_replenishable=is_replenishable)

    def free_consumable(self, name: str) -> int:
        return self._consumables.free(name)

    def placed(self) -> list[tuple[str, int]]:
        """The children that hold capacity now."""
        return [
            (job_id, index) for job_id, tracked in self._jobs.items() for index in tracked.placed
        ]

    # -- dependencies ---------------------------------------------------------------------------------------

    def _wait_for(self, tracked: TrackedJob, target: TrackedJob, child: int | None) -> bool:
        """Makes the whole job wait for the target; True if the target has failed already."""
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

    def _pair(self, tracked: TrackedJob, target: TrackedJob, changes: list[Change]) -> None:
        target.pair_followers.append(tracked)
        for index, code in enumerate(target.codes):
            if code == FAILED:
                self._settle(tracked, index, FAILED, StatusReason.DEPENDENCY_FAILED, 0, changes)
            elif code != SUCCEEDED:
                tracked.block(index)

    # -- endings and what follows from them -----------------------------------------------------------------

    def _settle(
        self,
        tracked: TrackedJob,
        index: int,
        code: int,
        reason: str,
        attempt: int,
        changes: list[Change],
    ) -> None:
        """Ends one child, and whatever follows from that; a work list, since a cascade can be 10,000 long."""
        todo = [(tracked, index, code, reason, attempt)]
        while todo:
            job, child, code, reason, attempt = todo.pop()
            if job.codes[child] >= SUCCEEDED:
                continue
            job.move(child, code)
            changes.append(Settled(job.job.id, child, attempt, STATES[code], reason))
            waiting = [(follower, child) for follower in job.pair_followers]
            if job.is_sequential and child + 1 < job.job.size:
                waiting.append((job, child + 1))
            for follower, its_child in waiting:
                if code == FAILED:
                    todo.append((follower, its_child, FAILED, StatusReason.DEPENDENCY_FAILED, 0))
                elif follower.unblock(its_child):
                    reason_to_fail = follower.cancellation(its_child)
                    if reason_to_fail is None:
                        self._lines[follower.job.queue].add(follower)
                    else:
                        todo.append((follower, its_child, FAILED, reason_to_fail, 0))
            for follower in job.child_followers.pop(child, ()):
                self._news.append((follower, code == SUCCEEDED))
            if job.is_over:
                self._settle_job(job, reason, changes)
            if code == FAILED and self._fail_fast:
                self._fail_fast = False
                self._fail_everything(f"fail_fast: {job.job.name} failed", changes)

    def _settle_job(self, tracked: TrackedJob, child_reason: str, changes: list[Change]) -> None:
        if tracked.settled:
            return
        tracked.settled = True
        self._unsettled -= 1
        state = tracked.state
        changes.append(JobSettled(tracked.job.id, state, tracked.status_reason(child_reason)))
        self._news.extend((follower, state is JobState.SUCCEEDED) for follower in tracked.followers)

    def _spread_news(self, changes: list[Change]) -> list[Change]:
        while self._news:
            follower, succeeded = self._news.popleft()
            if not succeeded:
                self._fail_all(follower, StatusReason.DEPENDENCY_FAILED, changes)
                continue
            follower.unmet -= 1
            if not follower.unmet and not follower.settled and follower.release():
                self._lines[follower.job.queue].add(follower)
                self._fail_cancelled(follower, changes)
        return changes

    def _fail_cancelled(self, tracked: TrackedJob, changes: list[Change]) -> None:
        """Of a job whose dependencies have just been met: what was cancelled while it waited for them."""
        if tracked.cancelled:
            for index in [index for index in tracked.ready if tracked.codes[index] == RUNNABLE]:
                reason = tracked.cancellation(index)
                if reason is not None:
                    self._settle(tracked, index, FAILED, reason, 0, changes)

    def _fail_all(self, tracked: TrackedJob, reason: str, changes: list[Change]) -> None:
        """Fails what has not been placed, and stops what has; the second time there is nothing left to do."""
        if tracked.settled or tracked.reason:
            return
        tracked.reason = reason
        unplaced = tracked.fail_unplaced()
        changes.append(RestFailed(tracked.job.id, reason))
        for index in tracked.placed:
            if index not in tracked.stopping:
                tracked.stopping[index] = reason
                changes.append(Stop(tracked.job.id, index))
        for follower in tracked.pair_followers:
            for index in unplaced:
                self._settle(follower, index, FAILED, StatusReason.DEPENDENCY_FAILED, 0, changes)
        for index in [index for index in tracked.child_followers if tracked.codes[index] == FAILED]:
            self._news.extend((follower, False) for follower in tracked.child_followers.pop(index))
        if tracked.is_over:
            self._settle_job(tracked, reason, changes)

    def _fail_everything(self, reason: str, changes: list[Change]) -> None:
        # Last submitted first: a follower then fails for this reason and not for its dependency's failure.
        for tracked in reversed(list(self._jobs.values())):
            self._fail_all(tracked, reason, changes)
