"""The embedded engine: the contract's verbs over one run's folder, and ``execute``, which does the work here."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from batchyard import plan as planning
from batchyard.batch.changes import Change
from batchyard.batch.jobs import Dependency, DependencyType, Job, JobState, Resources
from batchyard.batch.queues import ComputeEnvironment, Queue
from batchyard.batch.scheduler import Scheduler
from batchyard.embedded import machine
from batchyard.embedded.lock import Holder, RunLock, holder_of
from batchyard.embedded.logbook import LogBook
from batchyard.embedded.loop import DEFAULT_GRACE_S, Loop
from batchyard.embedded.processes import ProcessRunner
from batchyard.embedded.runner import Runner
from batchyard.embedded.spawner import Spawner
from batchyard.embedded.store import JobRow, Store
from batchyard.engines.base import (
    AttemptDetail,
    JobDetail,
    LogChunk,
    Overview,
    RunState,
    RunWatcher,
)
from batchyard.engines.local import children, reading
from batchyard.engines.local.watching import RowWatcher
from batchyard.errors import from_os_error
from batchyard.folder import RunFolder
from batchyard.plan import Plan, PlannedJob

#: open files that the engine needs beside those of its children
_SPARE_FILES = 64
#: an output's pipe and file, a process; with docker also a conversation's two ends
_FILES_PER_CHILD = 6


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and with what a run executes on this machine."""

    workspace: Path
    capacity: Resources
    #: numbers of the GPUs that the capacity counts, as the driver knows them
    gpu_numbers: tuple[int, ...]
    #: "process" or "docker"
    runner: str
    #: in the environment of everything that the run starts, and nowhere else
    token: str


class LocalEngine:
    name = "local"

    def __init__(
        self, folder: RunFolder, plan: Plan, clock: Callable[[], float] = time.time
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._clock = clock
        self._opened: Store | None = None
        self._log_reader: reading.LogReader | None = None

    # -- the contract ---------------------------------------------------------------------------------------

    def submit(self, plan: Plan, done: Mapping[str, Sequence[int]] | None = None) -> list[str]:
        """See the contract. ``done``: step -> commands of it that an earlier run has finished."""
        store = Store.open(self._folder.database, create=True)
        self._opened = store
        there = store.jobs()
        if there:
            return [row.id for row in there]
        now_ms = int(self._clock() * 1000)
        rows = []
        for number, job in enumerate(plan.jobs):
            counts = tuple(job.size if state is JobState.PENDING else 0 for state in JobState)
            row = JobRow(
                number,
                str(uuid.uuid4()),
                job.step,
                job.size,
                JobState.PENDING,
                "",
                counts,
                0,
                now_ms,
            )
            rows.append(row)
        commands = [(row.number, n) for row in rows for n in (done or {}).get(row.step, ())]
        store.commit(new_jobs=rows, commands=commands)
        return [row.id for row in rows]

    def describe(self, job_ids: Sequence[str]) -> list[JobDetail]:
        rows = {row.id: row for row in self._store.jobs()}
        return [reading.job_detail(rows[job_id]) for job_id in job_ids if job_id in rows]

    def attempts(
        self, job_ids: Sequence[str], *, failed_only: bool = False
    ) -> Iterator[AttemptDetail]:
        state = JobState.FAILED if failed_only else None
        for row in self._store.jobs():
            if row.id in job_ids:
                planned = self._plan.job(row.step)
                for attempt in self._store.attempts(
                    row.number, state=state, started_only=failed_only
                ):
                    yield reading.attempt_detail(attempt, row.id, planned)

    def stop(self, job_ids: Sequence[str], reason: str, grace_s: float = DEFAULT_GRACE_S) -> None:
        self._store.request_stop(job_ids, reason, grace_s)

    def logs(
        self, step: str | None = None, index: int | None = None, *, failed_only: bool = False
    ) -> Iterator[LogChunk]:
        return self.log_reader.read(step, index, failed_only=failed_only)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = self._log_reader = None

    # -- beyond it ------------------------------------------------------------------------------------------

    @property
    def log_reader(self) -> reading.LogReader:
        if self._log_reader is None:
            self._log_reader = reading.LogReader(self._folder, self._store, self._plan)
        return self._log_reader

    @property
    def job_ids(self) -> list[str]:
        return [row.id for row in self._store.jobs()]

    @property
    def holder(self) -> Holder | None:
        """The process that executes the run now."""
        return holder_of(self._folder.lock)

    @property
    def executed_by(self) -> int | None:
        """The process that last came so far as to execute the run."""
        value = self._store.value("executed_by")
        return None if value is None else int(value)

    @property
    def run_state(self) -> RunState:
        return RunState(self._store.value("state") or RunState.RUNNING)

    @property
    def started_ms(self) -> int | None:
        value = self._store.value("started_ms")
        return None if value is None else int(value)

    @property
    def ended_ms(self) -> int | None:
        value = self._store.value("ended_ms")
        return None if value is None else int(value)

    def overview(self) -> Overview:
        holder = self.holder  # before the state: a run that ends in between was held
        state = self.run_state
        return Overview(
            state=state,
            jobs=tuple(self.describe(self.job_ids)),
            started_ms=self.started_ms,
            ended_ms=self.ended_ms,
            is_interrupted=state is RunState.RUNNING and holder is None,
        )

    def unfinished(self) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        """(step -> children without success, by their numbers in the step; step -> commands that did succeed)."""
        children_left: dict[str, list[int]] = {}
        commands_done: dict[str, list[int]] = {}
        for row in self._store.jobs():
            planned = self._plan.job(row.step)
            succeeded = {
                a.child for a in self._store.attempts(row.number, state=JobState.SUCCEEDED)
            }
            left = [child for child in range(row.size) if child not in succeeded]
            children_left[row.step] = [planned.index_in_step(child) for child in left]
            commands_done[row.step] = self._store.commands(row.number)
        return children_left, commands_done

    def execute(
        self,
        setting: Setting,
        environ: Mapping[str, str],
        watcher: RunWatcher,
        *,
        carry_out_old_stops: bool = False,
    ) -> RunState:
        """Runs what is left to run, to the end. One process at a time: raises RunLockedError for the second.

        ``carry_out_old_stops``: also the stops that were asked for while nobody executed the run.
        """
        # Before the lock is seen to be held: from then on others expect that their requests are read.
        last_request = 0 if carry_out_old_stops else self._store.last_stop_request()
        lock = RunLock(self._folder.lock)
        try:
            if self.run_state is not RunState.RUNNING:
                return self.run_state
            return self._execute(
                setting, environ, watcher, last_request, must_start=not carry_out_old_stops
            )
        finally:
            lock.release()

    def _execute(
        self,
        setting: Setting,
        environ: Mapping[str, str],
        watcher: RunWatcher,
        last_request: int,
        must_start: bool,
    ) -> RunState:
        store = self._store
        machine.allow_open_files(
            planning.most_at_once(self._plan, setting.capacity) * _FILES_PER_CHILD + _SPARE_FILES
        )
        logs = LogBook(self._folder)
        spawner = Spawner(logs)
        runner = _runner(setting, spawner, self._folder, environ)
        try:
            runner.end_leftovers(setting.token)
            _enter(setting.workspace, must_start)
            if store.value("started_ms") is None:
                store.commit(values=[("started_ms", str(int(self._clock() * 1000)))])
            scheduler, jobs, changes = self._restored(setting, environ)
            loop = Loop(
                scheduler,
                runner,
                store,
                logs,
                RowWatcher(watcher, self._plan),
                last_request=last_request,
                clock=self._clock,
            )
            for job in jobs:
                loop.add(*job)
            # What follows from what an earlier process recorded, and it had no time to record.
            loop.perform(changes)
            loop.obey_requests()
            store.commit(values=[("executed_by", str(os.getpid()))])
            with _signals_to(loop, spawner.wake_fd):
                loop.run()
            state = _run_state(store.jobs(), loop.was_stopped)
            store.commit(values=[("state", state), ("ended_ms", str(int(self._clock() * 1000)))])
            return state
        except OSError as exc:
            raise from_os_error(exc, "go on with the run") from exc
        finally:
            runner.close()
            logs.close()

    def _restored(
        self, setting: Setting, environ: Mapping[str, str]
    ) -> tuple[Scheduler, list[tuple[Job, children.JobTasks, JobRow]], list[Change]]:
        """The scheduler as it was when the last process stopped, from the rows it left."""
        rows = self._store.jobs()
        ids = {row.step: row.id for row in rows}
        scheduler = Scheduler(
            [Queue(children.QUEUE_NAME, (children.ENVIRONMENT_NAME,))],
            [ComputeEnvironment(children.ENVIRONMENT_NAME, setting.capacity)],
            {job.step: job.max_running for job in self._plan.jobs if job.max_running is not None},
            fail_fast=self._plan.fail_fast,
        )
        jobs = []
        for row in rows:
            planned = self._plan.job(row.step)
            job = _core_job(planned, ids)
            scheduler.submit(job)
            jobs.append((job, self._tasks(row, planned, setting, environ), row))
        changes: list[Change] = []
        for row in rows:
            for attempt in self._store.attempts(row.number):
                state = None if attempt.state is None else JobState(attempt.state)
                changes += scheduler.restore(
                    row.id, attempt.child, attempt.attempt, state, attempt.status_reason
                )
        # Last first, as when they were stopped: a follower then keeps its own reason.
        for row in reversed(rows):
            if row.rest_reason is not None:
                changes += scheduler.terminate(row.id, row.rest_reason)
        return scheduler, jobs, changes

    def _tasks(
        self, row: JobRow, planned: PlannedJob, setting: Setting, environ: Mapping[str, str]
    ) -> children.JobTasks:
        shared = children.shared_environment(planned, self._folder, setting.workspace)
        path = self._folder.list_of(planned.step)
        return children.JobTasks(
            number=row.number,
            id=row.id,
            job=planned,
            load_list=lambda: reading.load_list(path),
            told=children.names_told(planned, shared),
            base_environ=children.base_environ(environ, shared),
            token=setting.token,
            gpu_numbers=setting.gpu_numbers,
            done=set(self._store.commands(row.number)),
        )

    @property
    def _store(self) -> Store:
        if self._opened is None:
            self._opened = Store.open(self._folder.database)
        return self._opened


def _enter(workspace: Path, must: bool) -> None:
    try:
        os.chdir(workspace)
    except OSError as exc:
        if must:  # where a run is only to be ended, no command will miss it
            raise from_os_error(exc, "enter the workspace", workspace) from exc


def _core_job(planned: PlannedJob, ids: Mapping[str, str]) -> Job:
    is_array = planned.size > 1
    dependencies = tuple(
        Dependency(
            ids[need.step],
            DependencyType.N_TO_N if need.each and is_array else DependencyType.WHOLE,
        )
        for need in planned.needs
    )
    return Job(
        id=ids[planned.step],
        name=planned.step,
        queue=children.QUEUE_NAME,
        resources=planned.resources,
        array_size=planned.size if is_array else None,
        depends_on=dependencies,
        retry=planned.retry,
        timeout_s=planned.timeout_s,
        consumables=((planned.step, 1),) if planned.max_running is not None else (),
    )


def _runner(
    setting: Setting, spawner: Spawner, folder: RunFolder, environ: Mapping[str, str]
) -> Runner:
    if setting.runner == "docker":
        from batchyard.embedded import containers, docker

        place = docker.Place(
            folder.run_id, setting.token, setting.workspace, folder.lists.absolute()
        )
        return containers.ContainerRunner(spawner, place, environ)
    return ProcessRunner(spawner)


def _run_state(jobs: list[JobRow], was_stopped: bool) -> RunState:
    if all(row.state == JobState.SUCCEEDED for row in jobs):
        return RunState.SUCCEEDED
    return RunState.STOPPED if was_stopped else RunState.FAILED


@contextmanager
def _signals_to(loop: Loop, wake_fd: int) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop the run, and a signal ends the loop's wait at once."""

    def handle(signum: int, frame: FrameType | None) -> None:
        loop.interrupt()

    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    # Under nohup SIGHUP is ignored, and stays so.
    numbers = [n for n in numbers if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in numbers}
    old_fd = signal.set_wakeup_fd(wake_fd, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(old_fd)
        for number, handler in before.items():
            signal.signal(number, handler)
