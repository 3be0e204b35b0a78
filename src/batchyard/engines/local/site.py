"""This machine as the site of a run: children are processes or containers in the workspace."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from batchyard import command_lengths
from batchyard.batch.jobs import Resources
from batchyard.batch.scheduler import Scheduler
from batchyard.embedded import children
from batchyard.embedded.logbook import LogBook
from batchyard.embedded.memory_use import MemoryUse
from batchyard.embedded.processes import ProcessRunner
from batchyard.embedded.spawner import Spawner
from batchyard.embedded.store import JobRow, Store
from batchyard.engines.base import RunRecord
from batchyard.engines.local.settings import LocalSettings
from batchyard.engines.local.step_limits import StepLimits
from batchyard.engines.scheduled.execution import JobShape
from batchyard.errors import from_os_error
from batchyard.folder import RunFolder
from batchyard.plan import PlannedJob

if TYPE_CHECKING:
    from batchyard.embedded.containers import ContainerRunner
    from batchyard.embedded.sampled_attempts import AttemptSampler

#: A run that ends before that loads nothing that takes samples.
_SAMPLES_AFTER_S = 1.0


class LocalSite:
    """See Site for the contract."""

    #: Processes of an earlier engine are ended, and their children start again.
    running_attempts = ()
    records_commands = True

    def __init__(self, record: RunRecord, store: Store, environ: Mapping[str, str]) -> None:
        self._folder = record.folder
        self._settings: LocalSettings = record.settings
        self._store = store
        self._environ = environ
        settings = self._settings
        self._step_limits = StepLimits(
            record.plan, settings.capacity, store, limited=settings.limited
        )
        self.logs = LogBook(record.folder)
        spawner = Spawner(self.logs)
        self.wake_fd = spawner.wake_fd
        self._memory_use = MemoryUse(store.value("memory_use"))
        self.starts_series = settings.runner == "process"
        self.runner = _make_runner(settings, spawner, record.folder, environ, self._memory_use)
        self._began_s = time.monotonic()
        self._sampler: AttemptSampler | None = None
        # A process that died has left what its children used then.
        record.folder.running_use.unlink(missing_ok=True)

    @property
    def capacity(self) -> Resources:
        return self._step_limits.capacity

    @property
    def limits(self) -> Mapping[str, int]:
        return self._step_limits.by_step

    def shape(self, planned: PlannedJob) -> JobShape:
        return JobShape(
            planned.resources, planned.retry, planned.timeout_s, self._start_order(planned)
        )

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

    def make_tasks(self, row: JobRow, planned: PlannedJob) -> children.JobTasks:
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

    def tick(self, scheduler: Scheduler) -> None:
        """Follow requests of `scale`, store memory use, and begin to take samples."""
        self._step_limits.apply_requests(scheduler, children.ENVIRONMENT_NAME)
        if self._memory_use.has_changed:
            self._memory_use.has_changed = False
            self._store.commit(values=[("memory_use", self._memory_use.to_text())])
        if self._sampler is None and self._settings.is_sampled:
            self._begin_sampling()

    def _begin_sampling(self) -> None:
        if time.monotonic() - self._began_s < _SAMPLES_AFTER_S:
            return
        from batchyard.embedded.sampled_attempts import AttemptSampler

        self._sampler = AttemptSampler(self.runner, self._folder.running_use)
        self._sampler.start()

    def finish(self) -> None:
        """Do nothing: processes of an earlier engine were ended at the start."""

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.close()
        self.runner.close()
        self.logs.close()


@contextmanager
def open_site(
    record: RunRecord, store: Store, environ: Mapping[str, str], *, must_enter_workspace: bool
) -> Iterator[LocalSite]:
    """The site of a run. While it is open, the current folder is the workspace.

    ``must_enter_workspace``: False if the run is only to be ended, without any command.
    """
    settings: LocalSettings = record.settings
    site = LocalSite(record, store, environ)
    # The caller's folder is opened, since its name may lead elsewhere when the run is over.
    caller_folder = os.open(".", os.O_PATH)
    try:
        if store.value("executed_by") is not None:
            site.runner.end_leftovers(settings.token)
        _enter(settings.workspace, must_enter_workspace)
        yield site
    except OSError as exc:
        raise from_os_error(exc, "continue the run") from exc
    finally:
        site.close()
        os.fchdir(caller_folder)
        os.close(caller_folder)


def _enter(workspace: Path, must: bool) -> None:
    try:
        os.chdir(workspace)
    except OSError as exc:
        if must:
            raise from_os_error(exc, "enter the workspace", workspace) from exc


def _make_runner(
    settings: LocalSettings,
    spawner: Spawner,
    folder: RunFolder,
    environ: Mapping[str, str],
    memory_use: MemoryUse,
) -> ProcessRunner | ContainerRunner:
    if settings.runner == "docker":
        from batchyard.embedded import containers, docker

        defaults = docker.ContainerDefaults(
            folder.run_id, settings.token, settings.workspace, folder.lists.absolute()
        )
        return containers.ContainerRunner(spawner, defaults, environ)
    return ProcessRunner(spawner, memory_use=memory_use)
