"""Execute a run in this process, with the embedded loop."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from batchyard import command_lengths
from batchyard.batch.changes import Change
from batchyard.batch.jobs import Dependency, DependencyType, Job, JobState
from batchyard.batch.queues import ComputeEnvironment, Queue
from batchyard.batch.scheduler import Scheduler
from batchyard.embedded import children
from batchyard.embedded.logbook import LogBook
from batchyard.embedded.loop import Loop
from batchyard.embedded.memory_use import MemoryUse
from batchyard.embedded.processes import ProcessRunner
from batchyard.embedded.runner import Runner, Task
from batchyard.embedded.spawner import Spawner
from batchyard.embedded.store import AttemptRow, JobRow, Store
from batchyard.engines.base import RunRecord, RunState, Watcher
from batchyard.engines.local import reading
from batchyard.engines.local.settings import LocalSettings
from batchyard.engines.local.step_limits import StepLimits
from batchyard.errors import from_os_error
from batchyard.folder import RunFolder
from batchyard.plan import Plan, PlannedJob


class Execution:
    """Executes all of a run that has not been executed yet."""

    def __init__(
        self,
        record: RunRecord,
        store: Store,
        environ: Mapping[str, str],
        clock: Callable[[], float],
    ) -> None:
        self._folder = record.folder
        self._plan = record.plan
        self._settings: LocalSettings = record.settings
        self._store = store
        self._environ = environ
        self._clock = clock

    def run(self, watcher: Watcher, last_request: int, *, must_enter_workspace: bool) -> None:
        """Execute to the end, and record the final state.

        ``last_request``: id of the last stop request that was for an earlier process.
        ``must_enter_workspace``: False if the run is only to be ended, without any command.
        """
        store, settings = self._store, self._settings
        limits = StepLimits(self._plan, settings.capacity, store, limited=settings.limited)
        logs = LogBook(self._folder)
        spawner = Spawner(logs)
        memory_use = MemoryUse(store.value("memory_use"))
        runner = _make_runner(settings, spawner, self._folder, self._environ, memory_use)
        # The caller's folder is opened, since its name may lead elsewhere when the run is over.
        caller_folder = os.open(".", os.O_PATH)
        try:
            if store.value("executed_by") is not None:
                runner.end_leftovers(settings.token)
            _enter(settings.workspace, must_enter_workspace)
            scheduler, jobs, changes = self._restore(limits)
            loop = Loop(
                scheduler,
                runner,
                store,
                logs,
                _RowWatcher(
                    watcher,
                    self._plan,
                    memory_use,
                    store,
                    lambda: limits.apply_requests(scheduler, children.ENVIRONMENT_NAME),
                ),
                last_request=last_request,
                commits_beside_turns=True,
                clock=self._clock,
            )
            for job in jobs:
                loop.add(*job)
            # Changes that an earlier process did not record, though it recorded their causes.
            loop.perform(changes)
            loop.carry_out_stop_requests()
            self._record_beginning()
            with _signals_to(loop, spawner.wake_fd):
                loop.run()
            state = _run_state(store.jobs(), loop.was_stopped)
            store.commit(values=[("state", state), ("ended_ms", str(int(self._clock() * 1000)))])
        except OSError as exc:
            raise from_os_error(exc, "continue the run") from exc
        finally:
            runner.close()
            logs.close()
            os.fchdir(caller_folder)
            os.close(caller_folder)

    def _record_beginning(self) -> None:
        """Record that this process executes the run: from now on there may be children."""
        values = [("executed_by", str(os.getpid()))]
        if self._store.value("started_ms") is None:
            values.append(("started_ms", str(int(self._clock() * 1000))))
        self._store.commit(values=values)

    def _restore(
        self, limits: StepLimits
    ) -> tuple[Scheduler, list[tuple[Job, children.JobTasks, JobRow]], list[Change]]:
        """Return the scheduler as the last process left it, its jobs, and unrecorded changes."""
        rows = self._store.jobs()
        ids = {row.step: row.id for row in rows}
        scheduler = Scheduler(
            [Queue(children.QUEUE_NAME, (children.ENVIRONMENT_NAME,))],
            [ComputeEnvironment(children.ENVIRONMENT_NAME, limits.capacity)],
            limits.by_step,
            fail_fast=self._plan.fail_fast,
        )
        jobs = []
        for row in rows:
            planned = self._plan.job(row.step)
            job = _core_job(planned, ids, self._start_order(planned))
            scheduler.submit(job)
            jobs.append((job, self._tasks(row, planned), row))
        changes: list[Change] = []
        for row in rows:
            for attempt in self._store.attempts(row.number):
                state = None if attempt.state is None else JobState(attempt.state)
                changes += scheduler.restore(
                    row.id, attempt.child, attempt.attempt, state, attempt.status_reason
                )
        # Last first, as in `Loop.stop`: a dependent job then has its own reason.
        for row in reversed(rows):
            if row.rest_reason is not None:
                changes += scheduler.terminate(row.id, row.rest_reason)
        return scheduler, jobs, changes

    def _start_order(self, planned: PlannedJob) -> Sequence[int] | None:
        """Return the children of a dynamic step, longest first; None if no lengths are known."""
        if not planned.has_lengths:
            return None
        lengths = self._folder.load_lengths(planned.step)
        if lengths is None or len(lengths) != planned.command_count:
            return None
        if planned.indices is not None:
            lengths = [lengths[index] for index in planned.indices]
        return command_lengths.sort_longest_first(range(planned.size), lengths)

    def _tasks(self, row: JobRow, planned: PlannedJob) -> children.JobTasks:
        shared = children.shared_environment(planned, self._folder, self._settings.workspace)
        return children.JobTasks(
            number=row.number,
            id=row.id,
            job=planned,
            load_list=lambda: self._folder.load_list(planned.step),
            engine_variables=children.list_engine_variables(planned, shared),
            base_environ=children.base_environ(self._environ, shared),
            token=self._settings.token,
            gpu_numbers=self._settings.gpu_numbers,
            done=set(self._store.succeeded_commands(row.number)),
        )


class _RowWatcher:
    """Passes rows of the loop to a watcher, as values of the contract, and stores memory use."""

    def __init__(
        self,
        watcher: Watcher,
        plan: Plan,
        memory_use: MemoryUse,
        store: Store,
        apply_limits: Callable[[], None],
    ) -> None:
        """``apply_limits`` is called at each tick."""
        self._apply_limits = apply_limits
        self._watcher = watcher
        self._plan = plan
        self._memory_use = memory_use
        self._store = store

    def on_tick(self, changed: Sequence[JobRow]) -> None:
        self._apply_limits()
        if self._memory_use.has_changed:
            self._memory_use.has_changed = False
            self._store.commit(values=[("memory_use", self._memory_use.to_text())])
        self._watcher.jobs_changed(
            [reading.job_detail(row, self._plan.job(row.step)) for row in changed]
        )

    def on_failure(self, task: Task, row: AttemptRow) -> None:
        planned = self._plan.job(task.step)
        self._watcher.attempt_failed(reading.attempt_detail(row, task.job_id, planned))


def _enter(workspace: Path, must: bool) -> None:
    try:
        os.chdir(workspace)
    except OSError as exc:
        if must:
            raise from_os_error(exc, "enter the workspace", workspace) from exc


def _core_job(
    planned: PlannedJob, ids: Mapping[str, str], start_order: Sequence[int] | None
) -> Job:
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
        consumables=((planned.step, 1),) if planned.has_limit else (),
        start_order=start_order,
    )


def _make_runner(
    settings: LocalSettings,
    spawner: Spawner,
    folder: RunFolder,
    environ: Mapping[str, str],
    memory_use: MemoryUse,
) -> Runner:
    if settings.runner == "docker":
        from batchyard.embedded import containers, docker

        defaults = docker.ContainerDefaults(
            folder.run_id, settings.token, settings.workspace, folder.lists.absolute()
        )
        return containers.ContainerRunner(spawner, defaults, environ)
    return ProcessRunner(spawner, memory_use=memory_use)


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
