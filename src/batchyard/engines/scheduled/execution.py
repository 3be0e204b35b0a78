"""Execute a run in this process, with the embedded loop. Engines differ in their sites."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from batchyard.batch.changes import Change, Start
from batchyard.batch.jobs import Job, JobState, Resources, RetryStrategy
from batchyard.batch.queues import ComputeEnvironment, Queue
from batchyard.batch.scheduler import Scheduler
from batchyard.embedded import children, proc
from batchyard.embedded.logbook import LogBook
from batchyard.embedded.loop import Loop, TaskMaker
from batchyard.embedded.memory_use import ENGINE_PEAK
from batchyard.embedded.runner import Runner, Task
from batchyard.embedded.store import AttemptRow, JobRow, Store
from batchyard.engines.base import RunRecord, RunState, Watcher
from batchyard.engines.scheduled import reading
from batchyard.plan import Plan, PlannedJob
from batchyard.quick_dataclasses import NamedTuple


class JobShape(NamedTuple):
    """What the scheduler knows about a job, beside its children and its dependencies."""

    resources: Resources
    retry: RetryStrategy
    timeout_s: int | None = None
    #: Children in the order in which they start; None: by their numbers.
    start_order: Sequence[int] | None = None


class Site(Protocol):
    """Where the attempts of a run execute: the engine's part of an execution."""

    logs: LogBook
    #: A file for signal.set_wakeup_fd: a byte written to it ends the runner's ``wait``.
    wake_fd: int
    #: Whether the store gets what each command of a child did.
    records_commands: bool
    #: Whether the runner can start short attempts one after the other, see ``Runner.start``.
    starts_series: bool

    @property
    def runner(self) -> Runner: ...

    @property
    def running_attempts(self) -> Sequence[tuple[int, int, int]]:
        """Attempts of an earlier process that go on, so that this process adopts them.

        Number of the job, child and attempt.
        """

    @property
    def capacity(self) -> Resources: ...

    @property
    def limits(self) -> Mapping[str, int]:
        """Step -> children that may run at once, of steps that have a limit."""

    def shape(self, planned: PlannedJob) -> JobShape: ...

    def make_tasks(self, row: JobRow, planned: PlannedJob) -> TaskMaker: ...

    def tick(self, scheduler: Scheduler) -> None:
        """Called ten times a second, with the runner's lock held."""

    def finish(self) -> None:
        """End what an earlier process left running, before the run is recorded as over."""


class HoldRule(NamedTuple):
    """How a run is held at its cap, on a site whose hosts cost money."""

    #: Returns why no further child starts; empty while the run is not held.
    find_reason: Callable[[], str]
    #: Returns attempts that were placed and are known not to have begun. The runner's lock is held.
    list_waiting: Callable[[], Iterable[Task]]
    #: Returns whether commands are left, although all children ended well.
    has_unfinished_commands: Callable[[], bool]


class Execution:
    """Executes all of a run that has not been executed yet."""

    def __init__(
        self,
        record: RunRecord,
        store: Store,
        site: Site,
        clock: Callable[[], float],
        hold: HoldRule | None = None,
    ) -> None:
        """``hold``: None for a run without a cap."""
        self._plan = record.plan
        self._store = store
        self._site = site
        self._clock = clock
        self._hold = hold

    def run(self, watcher: Watcher, last_request: int) -> None:
        """Execute to the end, and record the final state.

        ``last_request``: id of the last stop request that was for an earlier process.
        """
        store, site = self._store, self._site
        was_executed = store.value("executed_by") is not None
        scheduler, jobs, adopted, changes = self._restore()
        loop = Loop(
            scheduler,
            site.runner,
            store,
            site.logs,
            _RowWatcher(
                watcher,
                self._plan,
                lambda: self._tick(scheduler, loop),
                records_commands=site.records_commands,
            ),
            last_request=last_request,
            commits_beside_turns=True,
            starts_series=site.starts_series,
            clock=self._clock,
        )
        for job in jobs:
            loop.add(*job)
        with site.runner.lock:
            # First, since only a running attempt can be stopped.
            loop.start(adopted)
            # Changes that an earlier process did not record, though it recorded their causes.
            loop.perform(changes)
            self._keep_held(loop)
            loop.carry_out_stop_requests()
        self._record_beginning()
        with _signals_to(loop, site.wake_fd):
            loop.run()
        if was_executed:
            site.finish()
        state = _run_state(store.jobs(), loop.was_stopped)
        if state is RunState.SUCCEEDED and self._held_reason and self._has_unfinished_commands():
            state = RunState.FAILED
        store.commit(
            values=[
                ("state", state),
                ("ended_ms", str(int(self._clock() * 1000))),
                (ENGINE_PEAK, str(proc.own_peak_kib())),
            ]
        )

    def _tick(self, scheduler: Scheduler, loop: Loop) -> None:
        self._site.tick(scheduler)
        self._keep_held(loop)

    @property
    def _held_reason(self) -> str:
        return self._hold.find_reason() if self._hold is not None else ""

    def _keep_held(self, loop: Loop) -> None:
        """Let no further child start if the run is held. Tasks may turn out to wait later."""
        if self._hold is not None and (reason := self._hold.find_reason()):
            loop.hold(reason, self._hold.list_waiting())

    def _has_unfinished_commands(self) -> bool:
        return self._hold is not None and self._hold.has_unfinished_commands()

    def _record_beginning(self) -> None:
        """Record that this process executes the run: from now on there may be children."""
        values = [("executed_by", str(os.getpid()))]
        if self._store.value("started_ms") is None:
            values.append(("started_ms", str(int(self._clock() * 1000))))
        self._store.commit(values=values)

    def _restore(
        self,
    ) -> tuple[Scheduler, list[tuple[Job, TaskMaker, JobRow]], list[Start], list[Change]]:
        """Return the scheduler as the last process left it, and its jobs.

        Also the attempts to adopt, and changes that follow.
        """
        rows = self._store.jobs()
        ids = {row.step: row.id for row in rows}
        ids_by_number = {row.number: row.id for row in rows}
        scheduler = Scheduler(
            [Queue(children.QUEUE_NAME, (children.ENVIRONMENT_NAME,))],
            [ComputeEnvironment(children.ENVIRONMENT_NAME, self._site.capacity)],
            self._site.limits,
            fail_fast=self._plan.fail_fast,
        )
        jobs = []
        for row in rows:
            planned = self._plan.job(row.step)
            job = _core_job(self._plan, planned, ids, self._site.shape(planned))
            scheduler.submit(job)
            jobs.append((job, self._site.make_tasks(row, planned), row))
        changes: list[Change] = []
        for row in rows:
            for attempt in self._store.attempts(row.number):
                state = None if attempt.state is None else JobState(attempt.state)
                changes += scheduler.restore(
                    row.id, attempt.child, attempt.attempt, state, attempt.status_reason
                )
        # Their room is taken: children that have none must not get it.
        adopted = scheduler.adopt(
            (ids_by_number[number], child, attempt_number)
            for number, child, attempt_number in self._site.running_attempts
        )
        # Last first, as in `Loop.stop`: a dependent job then has its own reason. A held job is held
        # again when its tasks are adopted, which go on.
        held_reason = self._held_reason
        for row in reversed(rows):
            if row.rest_reason is not None and row.rest_reason != held_reason:
                changes += scheduler.terminate(row.id, row.rest_reason)
        return scheduler, jobs, adopted, changes


class _RowWatcher:
    """Passes rows of the loop to a watcher, as values of the contract."""

    def __init__(
        self, watcher: Watcher, plan: Plan, tick: Callable[[], None], *, records_commands: bool
    ) -> None:
        """``tick`` is called before the watcher gets the rows."""
        self._watcher = watcher
        self._plan = plan
        self._tick = tick
        self._records_commands = records_commands

    def on_tick(self, changed: Sequence[JobRow]) -> None:
        self._tick()
        self._watcher.jobs_changed(
            [
                reading.job_detail(
                    row, self._plan.job(row.step), records_commands=self._records_commands
                )
                for row in changed
            ]
        )

    def on_failure(self, task: Task, row: AttemptRow) -> None:
        planned = self._plan.job(task.step)
        self._watcher.attempt_failed(reading.attempt_detail(row, task.job_id, planned))


def _core_job(plan: Plan, planned: PlannedJob, ids: Mapping[str, str], shape: JobShape) -> Job:
    return Job(
        id=ids[planned.step],
        name=planned.step,
        queue=children.QUEUE_NAME,
        resources=shape.resources,
        array_size=planned.size if planned.size > 1 else None,
        depends_on=children.make_dependencies(plan, planned, ids),
        retry=shape.retry,
        timeout_s=shape.timeout_s,
        consumables=((planned.step, 1),) if planned.has_limit else (),
        start_order=shape.start_order,
    )


def _run_state(jobs: list[JobRow], was_stopped: bool) -> RunState:
    if all(row.state == JobState.SUCCEEDED for row in jobs):
        return RunState.SUCCEEDED
    return RunState.STOPPED if was_stopped else RunState.FAILED


@contextmanager
def _signals_to(loop: Loop, wake_fd: int) -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP stop the run, and end the wait of the loop at once."""

    def handle(signum: int, frame: FrameType | None) -> None:
        loop.interrupt()

    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    # Under nohup, SIGHUP is ignored and stays ignored.
    numbers = [n for n in numbers if signal.getsignal(n) is not signal.SIG_IGN]
    old_handlers = {number: signal.signal(number, handle) for number in numbers}
    old_fd = signal.set_wakeup_fd(wake_fd, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(old_fd)
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
