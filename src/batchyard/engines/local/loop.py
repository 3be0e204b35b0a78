"""The loop: tells the scheduler what happened, and performs what it answers. Decides nothing itself.

Order within one turn: what ended is told and put on the list of rows; before a child starts whose dependency is on
that list, the list is committed; in any case it is committed every 100 ms.
"""

from __future__ import annotations

import heapq
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

from batchyard.batch.changes import Change, JobSettled, RestFailed, Settled, Start, Stop
from batchyard.batch.jobs import DependencyType, Job, JobState
from batchyard.batch.scheduler import Scheduler
from batchyard.engines.local.children import JobTasks
from batchyard.engines.local.logbook import LogBook
from batchyard.engines.local.runner import Ended, Runner, Started, Task
from batchyard.engines.local.store import AttemptRow, JobRow, Store

TICK_S = 0.1
DEFAULT_GRACE_S = 30.0


class Watcher(Protocol):
    """Whoever looks on: a terminal, or nobody."""

    def on_tick(self, changed: list[JobRow]) -> None:
        """Called ten times a second, with the jobs that have changed; the first time with all of them."""

    def on_failure(self, task: Task, row: AttemptRow) -> None: ...


class Loop:
    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        store: Store,
        logs: LogBook,
        jobs: list[tuple[Job, JobTasks, JobRow]],
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
        self._jobs = {job.id: job for job, _, _ in jobs}
        self._tasks = {job.id: tasks for job, tasks, _ in jobs}
        self._rows = {job.id: row for job, _, row in jobs}
        self._depends_on = {job.id: _dependencies(job) for job, _, _ in jobs}
        #: attempts under way
        self._running: dict[tuple[str, int], Task] = {}
        #: (when to send SIGKILL, order, task)
        self._kills: list[tuple[float, int, Task]] = []
        self._attempt_rows: list[AttemptRow] = []
        self._command_rows: list[tuple[int, int]] = []
        #: jobs with children that ended since the last commit
        self._uncommitted: set[str] = set()
        self._changed: set[str] = set(self._rows)
        self._attempts_of = {job.id: row.attempts for job, _, row in jobs}
        #: rows that the watcher has not been told yet
        self._untold: dict[str, JobRow] = {}
        self._last_request = last_request
        self._interrupts = 0
        #: whether somebody asked for the end of the whole run
        self.was_stopped = store.value("was_stopped") is not None

    # -- from outside ---------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Ctrl-C or SIGTERM: stops the run; the second time, at once. Safe in a signal handler: it only counts."""
        self._interrupts += 1

    def stop(self, job_ids: Iterable[str], reason: str, grace_s: float) -> None:
        # Last first: what depends on another stopped job then fails for this reason, and not for that one's failure.
        wanted = [job_id for job_id in job_ids if job_id in self._jobs]
        for job_id in reversed(wanted):
            self._perform(self._scheduler.terminate(job_id, reason), grace_s)
        # What was being stopped already may have less time now.
        self._kill_after(grace_s, [task for task in self._running.values() if task.job_id in set(wanted)])

    def catch_up(self, changes: Iterable[Change]) -> None:
        """Records what follows from what an earlier process recorded, and it had no time to."""
        self._perform(changes)

    def obey_requests(self) -> None:
        """Stops what other processes have asked to stop."""
        for request in self._store.stop_requests(self._last_request):
            self._last_request = request.id
            self.was_stopped |= set(request.job_ids) >= set(self._jobs)
            self.stop(request.job_ids, request.reason, request.grace_s)

    # -- the loop -------------------------------------------------------------------------------------------

    def run(self) -> None:
        next_tick = self._monotonic()
        interrupts_seen = 0
        while not self._scheduler.is_over:
            self._start(self._scheduler.place())
            for event in self._runner.wait(max(0.0, next_tick - self._monotonic())):
                self._happened(event)
            if self._monotonic() >= next_tick:
                self._tick(self._monotonic())
                next_tick = self._monotonic() + TICK_S
            if self._interrupts > interrupts_seen:
                interrupts_seen = self._interrupts
                self._interrupted()
        self._runner.tick()
        self.commit()
        self._tell_watcher()

    def commit(self) -> None:
        self._logs.flush()
        changed = [self._summarised(self._rows[job_id]) for job_id in self._changed]
        self._rows.update((row.id, row) for row in changed)
        self._untold.update((row.id, row) for row in changed)
        for task in self._running.values():
            self._take_commands(task)
        values = [("was_stopped", "yes")] if self.was_stopped else ()
        self._store.commit(attempts=self._attempt_rows, commands=self._command_rows, jobs=changed, values=values)
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
        if self._changed or self._attempt_rows or any(task.unrecorded for task in self._running.values()):
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
        self.stop(list(self._jobs), "stopped by the user", DEFAULT_GRACE_S)
        if self._interrupts > 1:
            self._runner.signal(list(self._running.values()), signal.SIGKILL)

    # -- what to do -----------------------------------------------------------------------------------------

    def _start(self, starts: list[Start]) -> None:
        for start in starts:
            if self._uncommitted and not self._uncommitted.isdisjoint(self._depends_on[start.job_id]):
                self.commit()
            task = self._tasks[start.job_id].task(start)
            self._running[start.job_id, start.child] = task
            self._runner.start(task)
            self._changed.add(start.job_id)

    def _happened(self, event: Started | Ended) -> None:
        task = event.task
        if isinstance(event, Started):
            self._scheduler.started(task.job_id, task.child, int(self._monotonic() * 1000))
            job_row = self._rows[task.job_id]
            if job_row.started_ms is None:
                self._rows[task.job_id] = job_row._replace(started_ms=event.at_ms)
            self._changed.add(task.job_id)
            return
        del self._running[task.job_id, task.child]
        self._take_commands(task)
        changes = self._scheduler.ended(task.job_id, task.child, event.outcome)
        # The first change is about this very child: settled, or to be tried again.
        verdict = changes[0]
        settled = verdict if isinstance(verdict, Settled) else None
        row = AttemptRow(
            task.job_number,
            task.child,
            task.attempt,
            settled.state.value if settled else None,
            event.outcome.exit_code,
            event.outcome.reason,
            settled.status_reason if settled else event.outcome.status_reason,
            event.started_ms,
            event.ended_ms,
            event.user_s,
            event.system_s,
            event.max_rss_kib,
            ",".join(map(str, task.gpus)),
            event.log_offset,
            event.log_length,
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
        return row._replace(state=summary.state.value, counts=summary.counts, attempts=self._attempts_of[row.id])

    def _never_started(self, change: Settled) -> AttemptRow:
        number = self._rows[change.job_id].number
        now_ms = int(self._clock() * 1000)
        state = change.state.value
        return AttemptRow(number, change.child, 0, state, None, "", change.status_reason, None, now_ms)

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
