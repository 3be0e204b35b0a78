"""The loop: passes events of the runner to the scheduler, and performs the changes it returns.

In one turn, attempts that ended are reported to the scheduler and added to a list of rows. The list
is committed every 100 ms, and before a child starts that depends on a job in the list. There is one
turn at a time, in the thread that holds the runner's lock: the caller of ``run``, a thread of the
runner whose child has ended, or a caller of ``call``.
"""

from __future__ import annotations

import heapq
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol, TypeVar

from batchyard.batch.changes import Change, JobSettled, RestFailed, Settled, Start, Stop
from batchyard.batch.jobs import DependencyType, Job, JobState, Outcome
from batchyard.batch.scheduler import Scheduler
from batchyard.embedded.logbook import LogBook
from batchyard.embedded.recorder import Recorder
from batchyard.embedded.runner import (
    MAX_SERIES_LENGTH,
    Ended,
    Runner,
    Started,
    Task,
    Withdrawn,
)
from batchyard.embedded.slot_numbers import SlotNumbers
from batchyard.embedded.store import AttemptRow, CommandRow, JobRow, Store
from batchyard.embedded.use_table import WHOLE_ATTEMPT, UseRow

T = TypeVar("T")

TICK_S = 0.1
DEFAULT_GRACE_S = 30.0
#: Only children that ended within this time are followed by such a series.
_SHORT_MS = 4


class Watcher(Protocol):
    """Receives the progress of the loop."""

    def on_tick(self, changed: list[JobRow]) -> None:
        """Called ten times a second with the jobs that have changed, at first with all jobs."""

    def on_failure(self, task: Task, row: AttemptRow) -> None: ...


class TaskMaker(Protocol):
    """Makes the tasks of one job."""

    #: Numbers of commands that have succeeded, of children with several commands.
    done: set[int]

    def task(self, start: Start, slot: int) -> Task:
        """``slot``: the lowest number that no other running attempt of the job has."""


class LoopEndedError(RuntimeError):
    """The loop has ended, and takes no more calls."""


class Loop:
    """Executes the jobs of a scheduler with a runner, and records them in a store."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        store: Store,
        logs: LogBook,
        watcher: Watcher,
        *,
        last_request: int = 0,
        commits_beside_turns: bool = False,
        starts_series: bool = False,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``last_request``: id of the last stop request that was for an earlier process.

        ``commits_beside_turns``: children end and start while a tick writes to the disk. Only for a
        store that nobody but the loop uses.

        ``starts_series``: short children of a job start one after the other without a turn between
        them. Only for a runner that can.

        ``clock`` is for recorded times, ``monotonic`` for delays; both return seconds.
        """
        self._scheduler = scheduler
        self._runner = runner
        self._store = store
        self._watcher = watcher
        self._clock = clock
        self._monotonic = monotonic
        self._is_over: Callable[[], bool] = lambda: True
        #: An exception of another thread, which ``run`` raises.
        self._failure: BaseException | None = None
        self._tasks: dict[str, TaskMaker] = {}
        self._slots: dict[str, SlotNumbers] = {}
        self._rows: dict[str, JobRow] = {}
        self._depends_on: dict[str, frozenset[str]] = {}
        #: Attempts that run, by job id and child.
        self._running: dict[tuple[str, int], Task] = {}
        #: Status reasons of running attempts whose host was taken away.
        self._lost_reasons: dict[Task, str] = {}
        #: A heap of (when to send SIGKILL, tie breaker, task).
        self._kills: list[tuple[float, int, Task]] = []
        self._recorder = Recorder(store, logs)
        self._commits_beside_turns = commits_beside_turns
        self._starts_series = starts_series
        #: Job -> length of its series; 1 for a job that is not here.
        self._series_lengths: dict[str, int] = {}
        #: Job -> commands that succeeded, and that failed for good; of children with several.
        self._command_counts: dict[str, list[int]] = {}
        self._changed: set[str] = set()
        self._attempt_counts: dict[str, int] = {}
        #: Rows that the watcher has not got yet.
        self._unreported: dict[str, JobRow] = {}
        self._last_request = last_request
        self._interrupts = 0
        #: Whether a user or process has requested the end of the whole run.
        self.was_stopped = store.value("was_stopped") is not None

    # -- called from outside the loop ----------------------------------------------------------

    def add(self, job: Job, tasks: TaskMaker, row: JobRow) -> None:
        """Add a job that the scheduler has accepted and the store has recorded."""
        self._tasks[job.id] = tasks
        self._slots[job.id] = SlotNumbers()
        self._rows[job.id] = row
        self._command_counts[job.id] = [row.commands_succeeded, row.commands_failed]
        self._depends_on[job.id] = _dependencies(job)
        self._attempt_counts[job.id] = row.attempts
        self._changed.add(job.id)

    def call(self, action: Callable[[], T]) -> T:
        """Call ``action`` between two turns, and then take a turn.

        For other threads than that of ``run``. Raises LoopEndedError.
        """
        with self._runner.lock:
            if self._failure is not None or self._is_over():
                raise LoopEndedError
            result = action()
            self._guarded_turn()
        return result

    def perform(self, changes: Iterable[Change], grace_s: float = DEFAULT_GRACE_S) -> None:
        """Perform and record changes that the scheduler has returned to another caller."""
        self._perform(changes, grace_s)

    def record(self, job_ids: Iterable[str]) -> None:
        """Commit if attempts of these jobs have ended since the last commit."""
        if not self._recorder.has_all_ends(frozenset(job_ids)):
            self.commit()

    def row(self, job_id: str) -> JobRow:
        return self._rows[job_id]

    def find_running_task(self, job_id: str, child: int) -> Task | None:
        """Return the attempt of a child that runs or is being started; None if none does."""
        task = self._running.get((job_id, child))
        return None if task is None or self._is_waiting(task) else task

    def running_tasks(self) -> list[Task]:
        """Return all attempts that run or are being started."""
        return [task for task in self._running.values() if not self._is_waiting(task)]

    def _is_waiting(self, task: Task) -> bool:
        """Return whether an attempt is a follower that has not started."""
        return self._scheduler.child_state(task.job_id, task.child) is JobState.RUNNABLE

    def lose(self, job_id: str, child: int, status_reason: str) -> bool:
        """End a running attempt without an exit code, as if its host had been taken away.

        A follower that has not started waits again. Returns False if no attempt of the child runs.
        """
        task = self._running.get((job_id, child))
        if task is None:
            return False
        self._lost_reasons[task] = status_reason
        self._runner.signal([task], signal.SIGKILL)
        return True

    def interrupt(self) -> None:
        """Stop the run; the second time, kill it. Safe in a signal handler: it only counts."""
        self._interrupts += 1

    def stop(self, job_ids: Iterable[str], reason: str, grace_s: float) -> None:
        """Terminate jobs. Their running attempts get SIGTERM, and SIGKILL after ``grace_s``."""
        # Last first, so that a dependent job has this reason and not the failure of its dependency.
        present_ids = [job_id for job_id in job_ids if job_id in self._rows]
        for job_id in reversed(present_ids):
            self._perform(self._scheduler.terminate(job_id, reason), grace_s)
        # An attempt that was being stopped already may have less time now.
        stopped_ids = set(present_ids)
        self._kill_after(
            grace_s, [task for task in self._running.values() if task.job_id in stopped_ids]
        )

    def hold(self, reason: str, waiting: Iterable[Task]) -> None:
        """Let no further child start, also none that is tried again. Attempts that run go on.

        ``waiting``: attempts that were placed and have not begun. They are ended.
        """
        for job_id in reversed(self._rows):
            self._perform(self._scheduler.hold(job_id, reason))
        for task in waiting:
            if task.started_ms is None and (task.job_id, task.child) in self._running:
                changes = self._scheduler.terminate(task.job_id, reason, task.child)
                self._perform(changes)

    def start(self, starts: list[Start]) -> None:
        """Give the runner attempts that the scheduler has placed, before ``run``."""
        self._start(starts)

    def carry_out_stop_requests(self) -> None:
        """Stop the jobs that other processes have requested to stop."""
        for request in self._store.stop_requests(self._last_request):
            self._last_request = request.id
            self.was_stopped |= set(request.job_ids) >= set(self._rows)
            self.stop(request.job_ids, request.reason, request.grace_s)

    # -- the loop ------------------------------------------------------------------------------

    def run(self, is_over: Callable[[], bool] | None = None) -> None:
        """Run until ``is_over`` returns True; by default, until all jobs are over."""
        with self._runner.lock:
            self._is_over = is_over or (lambda: self._scheduler.is_over)
            self._runner.listen(self._guarded_turn)
            try:
                self._run()
            finally:
                self._is_over = lambda: True
            self._runner.tick()
            self.commit()
            self._notify_watcher()

    def _run(self) -> None:
        next_tick = self._monotonic()
        interrupts_seen = 0
        while not self._is_over():
            self._turn()
            self._runner.wait(max(0.0, next_tick - self._monotonic()))
            if self._failure is not None:
                raise self._failure
            self._turn()
            if self._monotonic() >= next_tick:
                self._tick(self._monotonic())
                next_tick = self._monotonic() + TICK_S
            if self._interrupts > interrupts_seen:
                interrupts_seen = self._interrupts
                self._stop_after_interrupt()

    def _turn(self) -> None:
        """Pass new events to the scheduler, and start the attempts that it places."""
        self._handle_events()
        while starts := self._scheduler.place():
            was_refused = self._start(starts)
            if not self._handle_events() and not was_refused:
                break  # no capacity has become free

    def _handle_events(self) -> bool:
        """Handle the events of the runner. Returns whether an attempt has ended."""
        has_end = False
        for event in self._runner.take_events():
            if isinstance(event, Started):
                self._handle_start(event)
            elif isinstance(event, Ended):
                has_end = True
                self._handle_end(event)
            else:
                has_end = True
                self._handle_withdrawal(event)
        return has_end

    def _guarded_turn(self) -> None:
        """Take a turn in another thread than that of ``run``, which raises its exceptions."""
        if self._failure is not None or self._is_over():
            return
        try:
            self._turn()
        except BaseException as exc:
            self._failure = exc
        if self._failure is not None or self._is_over():
            self._runner.wake()

    def commit(self) -> None:
        """Write all that happened since the last commit to disk, in one transaction."""
        self._recorder.commit(*self._take_changes())

    def _take_changes(self) -> tuple[list[JobRow], list[tuple[str, str | None]]]:
        """Return the rows of jobs that have changed, and the values of the run."""
        changed = [self._with_summary(self._rows[job_id]) for job_id in self._changed]
        self._rows.update((row.id, row) for row in changed)
        self._unreported.update((row.id, row) for row in changed)
        self._changed.clear()
        for task in self._running.values():
            self._take_commands(task)
        return changed, [("was_stopped", "yes")] if self.was_stopped else []

    def _tick(self, now_s: float) -> None:
        self._perform(self._scheduler.tick(int(now_s * 1000)))
        due = []
        while self._kills and self._kills[0][0] <= now_s:
            due.append(heapq.heappop(self._kills)[2])
        if due:
            self._runner.signal(due, signal.SIGKILL)
        self._runner.tick()
        if (
            self._changed
            or self._recorder.has_attempts
            or any(task.unrecorded for task in self._running.values())
        ):
            if self._commits_beside_turns:
                self._recorder.commit_without(self._runner.lock, *self._take_changes())
            else:
                self.commit()
        self.carry_out_stop_requests()
        self._notify_watcher()

    def _notify_watcher(self) -> None:
        rows, self._unreported = list(self._unreported.values()), {}
        # A closed terminal must not end the run.
        with suppress(OSError):
            self._watcher.on_tick(rows)

    def _stop_after_interrupt(self) -> None:
        self.was_stopped = True
        # Two signals can arrive in one turn, so the work of the first is done in any case.
        self.stop(list(self._rows), "stopped by the user", DEFAULT_GRACE_S)
        if self._interrupts > 1:
            self._runner.signal(list(self._running.values()), signal.SIGKILL)

    # -- events and changes --------------------------------------------------------------------

    def _start(self, starts: list[Start]) -> bool:
        """Start attempts. Returns whether one of them was refused, and has ended already."""
        was_refused = False
        series: list[Task] = []
        for start in starts:
            if series and not start.is_follower:
                self._runner.start(*series)
                series.clear()
            task = self._make_task(start, series[-1] if series else None)
            if task.refusal is None:
                series.append(task)
            else:
                was_refused = True
                now_ms = int(self._clock() * 1000)
                self._handle_end(Ended(task, task.refusal, None, now_ms, 0.0, 0.0, 0, None, None))
        if series:
            self._runner.start(*series)
        return was_refused

    def _make_task(self, start: Start, leader: Task | None) -> Task:
        """Return the task of an attempt. ``leader``: an attempt whose slot it gets, if any."""
        depends_on = self._depends_on[start.job_id]
        if depends_on and not self._recorder.has_all_ends(depends_on):
            self.commit()
        slots = self._slots[start.job_id]
        if leader is None:
            slot = slots.take()
        else:
            slot = leader.slot
            slots.share(slot)
        task = self._tasks[start.job_id].task(start, slot)
        task.slot = slot
        self._running[start.job_id, start.child] = task
        self._changed.add(start.job_id)
        return task

    def _handle_start(self, event: Started) -> None:
        task = event.task
        task.started_ms = event.at_ms
        # An attempt that was adopted from an earlier process has used a part of its time.
        age_ms = max(0, int(self._clock() * 1000) - event.at_ms)
        now_ms = int(self._monotonic() * 1000)
        self._scheduler.attempt_started(task.job_id, task.child, now_ms - age_ms)
        job_row = self._rows[task.job_id]
        # A follower never starts first.
        if job_row.started_ms is None:
            self._rows[task.job_id] = job_row._replace(started_ms=event.at_ms)
        self._changed.add(task.job_id)

    def _handle_withdrawal(self, event: Withdrawn) -> None:
        task = event.task
        del self._running[task.job_id, task.child]
        self._slots[task.job_id].give_back(task.slot)
        self._lost_reasons.pop(task, None)
        self._set_series_length(task.job_id, was_short=False)
        self._changed.add(task.job_id)
        self._perform(self._scheduler.withdraw(task.job_id, task.child))

    def _set_series_length(self, job_id: str, *, was_short: bool) -> None:
        """Make the series of a job longer after a short child, and else have none for now."""
        old_length = self._series_lengths.get(job_id, 1)
        length = min(2 * old_length, MAX_SERIES_LENGTH) if was_short else 1
        if length != old_length:
            self._series_lengths[job_id] = length
            self._scheduler.allow_series(job_id, length)

    def _handle_end(self, event: Ended) -> None:
        task = event.task
        del self._running[task.job_id, task.child]
        self._slots[task.job_id].give_back(task.slot)
        if task.has_several_commands:
            self._take_commands(task)
        elif self._starts_series:
            duration_ms = event.ended_ms - (event.started_ms or 0)
            was_short = event.outcome.exit_code == 0 and duration_ms <= _SHORT_MS
            self._set_series_length(task.job_id, was_short=was_short)
        outcome = event.outcome
        if self._lost_reasons and (reason := self._lost_reasons.pop(task, None)) is not None:
            outcome = Outcome(None, reason)
        changes = self._scheduler.attempt_ended(task.job_id, task.child, outcome)
        # The first change is about this child: it has settled, or is tried again.
        verdict = changes[0]
        settled = verdict if isinstance(verdict, Settled) else None
        row = AttemptRow(
            task.job_number,
            task.child,
            task.attempt,
            str(settled.state) if settled else None,
            outcome.exit_code,
            outcome.reason,
            settled.status_reason if settled else outcome.status_reason,
            event.started_ms,
            event.ended_ms,
            event.user_s,
            event.system_s,
            event.max_rss_kib,
            ",".join(map(str, task.gpus)) if task.gpus else "",
            event.log_offset,
            event.log_length,
            _place_of(task),
        )
        self._recorder.add_attempt(task.job_id, row)
        if event.use is not None:
            key = (task.job_number, task.child, task.attempt)
            self._recorder.add_uses([UseRow(*key, WHOLE_ATTEMPT, event.use)])
        self._attempt_counts[task.job_id] += 1
        self._changed.add(task.job_id)
        if row.state != JobState.SUCCEEDED:
            if row.state is not None:
                self._command_counts[task.job_id][1] += task.failed_count
            with suppress(OSError):
                self._watcher.on_failure(task, row)
        if len(changes) > 1:
            self._perform(changes[1:])

    def _perform(self, changes: Iterable[Change], grace_s: float = DEFAULT_GRACE_S) -> None:
        to_stop: list[Task] = []
        for change in changes:
            self._changed.add(change.job_id)
            if isinstance(change, Stop):
                to_stop.append(self._running[change.job_id, change.child])
            elif isinstance(change, Settled):
                self._recorder.add_attempt(change.job_id, self._unstarted_row(change))
            elif isinstance(change, RestFailed):
                row = self._rows[change.job_id]
                self._rows[change.job_id] = row._replace(rest_reason=change.status_reason)
            elif isinstance(change, JobSettled):
                row = self._rows[change.job_id]
                if row.ended_ms is None:  # after a resume, the change is repeated
                    self._rows[change.job_id] = row._replace(
                        status_reason=change.status_reason, ended_ms=int(self._clock() * 1000)
                    )
        if to_stop:
            self._runner.signal(to_stop, signal.SIGTERM)
            self._kill_after(grace_s, to_stop)

    def _kill_after(self, grace_s: float, tasks: Iterable[Task]) -> None:
        kill_at = self._monotonic() + grace_s
        for task in tasks:
            heapq.heappush(self._kills, (kill_at, id(task), task))

    # -- rows ----------------------------------------------------------------------------------

    def _with_summary(self, row: JobRow) -> JobRow:
        summary = self._scheduler.summary(row.id)
        succeeded, failed = self._command_counts[row.id]
        return row._replace(
            state=summary.state.value,
            counts=summary.counts,
            attempts=self._attempt_counts[row.id],
            commands_succeeded=succeeded,
            commands_failed=failed,
        )

    def _unstarted_row(self, change: Settled) -> AttemptRow:
        number = self._rows[change.job_id].number
        now_ms = int(self._clock() * 1000)
        state = change.state.value
        return AttemptRow(
            number, change.child, 0, state, None, "", change.status_reason, None, now_ms
        )

    def _take_commands(self, task: Task) -> None:
        if not task.unrecorded:
            return
        succeeded = [end.number for end in task.unrecorded if end.exit_code == 0]
        self._tasks[task.job_id].done.update(succeeded)
        self._command_counts[task.job_id][0] += len(succeeded)
        self._recorder.add_commands(
            [
                CommandRow(task.job_number, end.number, task.child, task.attempt, *end[1:-1])
                for end in task.unrecorded
            ]
        )
        self._recorder.add_uses(
            [
                UseRow(task.job_number, task.child, task.attempt, end.number, end.use)
                for end in task.unrecorded
                if end.use is not None
            ]
        )
        task.unrecorded.clear()


def _place_of(task: Task) -> str:
    """Return where an attempt ran, for its row."""
    if task.host_id:
        return f"{task.compute_environment}/{task.host_id}"
    return task.compute_environment or str(task.slot)


def _dependencies(job: Job) -> frozenset[str]:
    """Return the ids of jobs whose ends must be on disk before a child of this job starts."""
    ids = {dep.job_id.partition(":")[0] for dep in job.depends_on if dep.job_id is not None}
    if any(dep.type is DependencyType.SEQUENTIAL for dep in job.depends_on):
        ids.add(job.id)
    return frozenset(ids)
