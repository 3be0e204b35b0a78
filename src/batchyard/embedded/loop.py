"""The loop: tells the scheduler what happened, and performs what it answers. Decides nothing itself.

Order within one turn: what ended is told and put on the list of rows; before a child starts whose dependency is on
that list, the list is committed; in any case it is committed every 100 ms. One turn at a time, by whichever thread
has the runner's lock: the one that called ``run``, one of the runner's whose child has ended, one that uses ``call``.
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
from batchyard.embedded.runner import Ended, Runner, Started, Task
from batchyard.embedded.store import AttemptRow, JobRow, Store

T = TypeVar("T")

TICK_S = 0.1
DEFAULT_GRACE_S = 30.0


class Watcher(Protocol):
    """Whoever looks on: a terminal, or nobody."""

    def on_tick(self, changed: list[JobRow]) -> None:
        """Called ten times a second, with the jobs that have changed; the first time with all of them."""

    def on_failure(self, task: Task, row: AttemptRow) -> None: ...


class TaskMaker(Protocol):
    """One job, as far as what its children are told is concerned."""

    #: commands that have succeeded, where a child has several
    done: set[int]

    def task(self, start: Start) -> Task: ...


class LoopIsOver(RuntimeError):
    """Nothing is done any more."""


class Loop:
    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        store: Store,
        logs: LogBook,
        watcher: Watcher,
        *,
        last_request: int = 0,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``last_request``: stop requests up to this one were the business of an earlier process. ``clock`` is for what
        is recorded, ``monotonic`` for what is waited for."""
        self._scheduler = scheduler
        self._runner = runner
        self._store = store
        self._logs = logs
        self._watcher = watcher
        self._clock = clock
        self._monotonic = monotonic
        self._is_over: Callable[[], bool] = lambda: True
        #: what went wrong in somebody else's thread, for ``run`` to raise
        self._failure: BaseException | None = None
        self._tasks: dict[str, TaskMaker] = {}
        self._rows: dict[str, JobRow] = {}
        self._depends_on: dict[str, frozenset[str]] = {}
        #: attempts under way
        self._running: dict[tuple[str, int], Task] = {}
        #: why attempts under way are lost, with the host that they pretend to be on
        self._lost: dict[Task, str] = {}
        #: (when to send SIGKILL, order, task)
        self._kills: list[tuple[float, int, Task]] = []
        self._attempt_rows: list[AttemptRow] = []
        self._command_rows: list[tuple[int, int]] = []
        #: jobs with children that ended since the last commit
        self._uncommitted: set[str] = set()
        self._changed: set[str] = set()
        self._attempts_of: dict[str, int] = {}
        #: rows that the watcher has not been told yet
        self._untold: dict[str, JobRow] = {}
        self._last_request = last_request
        self._interrupts = 0
        #: whether somebody asked for the end of the whole run
        self.was_stopped = store.value("was_stopped") is not None

    # -- from outside ---------------------------------------------------------------------------------------

    def add(self, job: Job, tasks: TaskMaker, row: JobRow) -> None:
        """A job that the scheduler has accepted and the store has recorded."""
        self._tasks[job.id] = tasks
        self._rows[job.id] = row
        self._depends_on[job.id] = _dependencies(job)
        self._attempts_of[job.id] = row.attempts
        self._changed.add(job.id)

    def call(self, action: Callable[[], T]) -> T:
        """From another thread, while ``run`` runs: does it between two turns, and starts what follows from it."""
        with self._runner.lock:
            if self._failure is not None or self._is_over():
                raise LoopIsOver
            result = action()
            self._guarded_turn()
        return result

    def perform(self, changes: Iterable[Change], grace_s: float = DEFAULT_GRACE_S) -> None:
        """Does and records what the scheduler has answered to somebody else than the loop."""
        self._perform(changes, grace_s)

    def record(self, job_ids: Iterable[str]) -> None:
        """Sees to it that what is known of the jobs is on disk."""
        if not self._uncommitted.isdisjoint(job_ids):
            self.commit()

    def row(self, job_id: str) -> JobRow:
        return self._rows[job_id]

    def running(self, job_id: str, child: int) -> Task | None:
        """The attempt that is under way."""
        return self._running.get((job_id, child))

    def lose(self, job_id: str, child: int, status_reason: str) -> bool:
        """Takes away the host of an attempt under way: it ends now, with no exit code. False where none is."""
        task = self._running.get((job_id, child))
        if task is None:
            return False
        self._lost[task] = status_reason
        self._runner.signal([task], signal.SIGKILL)
        return True

    def interrupt(self) -> None:
        """Ctrl-C or SIGTERM: stops the run; the second time, at once. Safe in a signal handler: it only counts."""
        self._interrupts += 1

    def stop(self, job_ids: Iterable[str], reason: str, grace_s: float) -> None:
        # Last first: what depends on another stopped job then fails for this reason, and not for that one's failure.
        wanted = [job_id for job_id in job_ids if job_id in self._rows]
        for job_id in reversed(wanted):
            self._perform(self._scheduler.terminate(job_id, reason), grace_s)
        # What was being stopped already may have less time now.
        self._kill_after(
            grace_s, [task for task in self._running.values() if task.job_id in set(wanted)]
        )

    def obey_requests(self) -> None:
        """Stops what other processes have asked to stop."""
        for request in self._store.stop_requests(self._last_request):
            self._last_request = request.id
            self.was_stopped |= set(request.job_ids) >= set(self._rows)
            self.stop(request.job_ids, request.reason, request.grace_s)

    # -- the loop -------------------------------------------------------------------------------------------

    def run(self, is_over: Callable[[], bool] | None = None) -> None:
        """Until all jobs are over, or as long as the caller says."""
        with self._runner.lock:
            self._is_over = is_over or (lambda: self._scheduler.is_over)
            self._runner.listen(self._guarded_turn)
            try:
                self._run()
            finally:
                self._is_over = lambda: True
            self._runner.tick()
            self.commit()
            self._tell_watcher()

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
                self._interrupted()

    def _turn(self) -> None:
        """Tells the scheduler what has happened, and starts what it places."""
        self._take_news()
        while starts := self._scheduler.place():
            self._start(starts)
            self._take_news()

    def _take_news(self) -> None:
        for event in self._runner.news():
            self._happened(event)

    def _guarded_turn(self) -> None:
        """A turn of another thread than that of ``run``, to which it leaves whatever goes wrong."""
        if self._is_over():
            return
        try:
            self._turn()
        except BaseException as exc:
            self._failure = exc
        if self._failure is not None or self._is_over():
            self._runner.wake()

    def commit(self) -> None:
        self._logs.flush()
        changed = [self._summarised(self._rows[job_id]) for job_id in self._changed]
        self._rows.update((row.id, row) for row in changed)
        self._untold.update((row.id, row) for row in changed)
        for task in self._running.values():
            self._take_commands(task)
        values = [("was_stopped", "yes")] if self.was_stopped else ()
        self._store.commit(
            attempts=self._attempt_rows, commands=self._command_rows, jobs=changed, values=values
        )
        self._attempt_rows, self._command_rows = [], []
        self._uncommitted.clear()
        self._changed.clear()

    def _tick(self, now: float) -> None:
        self._perform(self._scheduler.tick(int(now * 1000)))
        due = []
        while self._kills and self._kills[0][0] <= now:
            due.append(heapq.heappop(self._kills)[2])
        if due:
            self._runner.signal(due, signal.SIGKILL)
        self._runner.tick()
        if (
            self._changed
            or self._attempt_rows
            or any(task.unrecorded for task in self._running.values())
        ):
            self.commit()
        self.obey_requests()
        self._tell_watcher()

    def _tell_watcher(self) -> None:
        rows, self._untold = list(self._untold.values()), {}
        # Whoever watched may have gone, a terminal that was closed: the run goes on without.
        with suppress(OSError):
            self._watcher.on_tick(rows)

    def _interrupted(self) -> None:
        self.was_stopped = True
        # Two signals can come in one turn: the first one's work is done in any case.
        self.stop(list(self._rows), "stopped by the user", DEFAULT_GRACE_S)
        if self._interrupts > 1:
            self._runner.signal(list(self._running.values()), signal.SIGKILL)

    # -- what to do -----------------------------------------------------------------------------------------

    def _start(self, starts: list[Start]) -> None:
        for start in starts:
            if self._uncommitted and not self._uncommitted.isdisjoint(
                self._depends_on[start.job_id]
            ):
                self.commit()
            task = self._tasks[start.job_id].task(start)
            self._running[start.job_id, start.child] = task
            self._changed.add(start.job_id)
            if task.refused is None:
                self._runner.start(task)
            else:
                now_ms = int(self._clock() * 1000)
                self._happened(Ended(task, task.refused, None, now_ms, 0.0, 0.0, 0, None, None))

    def _happened(self, event: Started | Ended) -> None:
        task = event.task
        if isinstance(event, Started):
            task.started_ms = event.at_ms
            self._scheduler.attempt_started(task.job_id, task.child, int(self._monotonic() * 1000))
            job_row = self._rows[task.job_id]
            if job_row.started_ms is None:
                self._rows[task.job_id] = job_row._replace(started_ms=event.at_ms)
            self._changed.add(task.job_id)
            return
        del self._running[task.job_id, task.child]
        self._take_commands(task)
        outcome = event.outcome
        if self._lost and (lost_reason := self._lost.pop(task, None)) is not None:
            outcome = Outcome(None, lost_reason)
        changes = self._scheduler.attempt_ended(task.job_id, task.child, outcome)
        # The first change is about this very child: settled, or to be tried again.
        verdict = changes[0]
        settled = verdict if isinstance(verdict, Settled) else None
        row = AttemptRow(
            task.job_number,
            task.child,
            task.attempt,
            settled.state.value if settled else None,
            outcome.exit_code,
            outcome.reason,
            settled.status_reason if settled else outcome.status_reason,
            event.started_ms,
            event.ended_ms,
            event.user_s,
            event.system_s,
            event.max_rss_kib,
            ",".join(map(str, task.gpus)),
            event.log_offset,
            event.log_length,
            task.place,
        )
        self._attempt_rows.append(row)
        self._attempts_of[task.job_id] += 1
        self._uncommitted.add(task.job_id)
        self._changed.add(task.job_id)
        if row.state != JobState.SUCCEEDED:
            with suppress(OSError):
                self._watcher.on_failure(task, row)
        self._perform(changes[1:])

    def _perform(self, changes: Iterable[Change], grace_s: float = DEFAULT_GRACE_S) -> None:
        to_stop: list[Task] = []
        for change in changes:
            self._changed.add(change.job_id)
            if isinstance(change, Stop):
                to_stop.append(self._running[change.job_id, change.child])
            elif isinstance(change, Settled):
                self._attempt_rows.append(self._never_started(change))
                self._uncommitted.add(change.job_id)
            elif isinstance(change, RestFailed):
                row = self._rows[change.job_id]
                self._rows[change.job_id] = row._replace(rest_reason=change.status_reason)
            elif isinstance(change, JobSettled):
                row = self._rows[change.job_id]
                if row.ended_ms is None:  # else it is told again, after a resume
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

    # -- rows -----------------------------------------------------------------------------------------------

    def _summarised(self, row: JobRow) -> JobRow:
        summary = self._scheduler.summary(row.id)
        return row._replace(
            state=summary.state.value, counts=summary.counts, attempts=self._attempts_of[row.id]
        )

    def _never_started(self, change: Settled) -> AttemptRow:
        number = self._rows[change.job_id].number
        now_ms = int(self._clock() * 1000)
        state = change.state.value
        return AttemptRow(
            number, change.child, 0, state, None, "", change.status_reason, None, now_ms
        )

    def _take_commands(self, task: Task) -> None:
        if task.unrecorded:
            # A child with one command has no other record than its own.
            if task.has_several:
                self._tasks[task.job_id].done.update(task.unrecorded)
                self._command_rows += [(task.job_number, number) for number in task.unrecorded]
            task.unrecorded.clear()


def _dependencies(job: Job) -> frozenset[str]:
    """The jobs whose endings must be on disk before a child of this job starts."""
    ids = {dep.job_id.partition(":")[0] for dep in job.depends_on if dep.job_id is not None}
    if any(dep.type is DependencyType.SEQUENTIAL for dep in job.depends_on):
        ids.add(job.id)
    return frozenset(ids)
