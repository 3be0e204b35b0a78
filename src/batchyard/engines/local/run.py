"""One run of the local engine: its execution on this machine, its output and its commands."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from batchyard import plan as planning
from batchyard.embedded import machine, memory_use, running_use
from batchyard.engines.base import (
    CommandDetail,
    JobDetail,
    LogChunk,
    MemoryExcess,
    Overview,
    Polling,
    RunRecord,
    RunSetup,
    Supervise,
    Unfinished,
    Watcher,
)
from batchyard.engines.local import reading, running, step_limits
from batchyard.engines.local.settings import LocalSettings
from batchyard.engines.scheduled.reading import child_of
from batchyard.engines.scheduled.run import ScheduledRun
from batchyard.errors import InputError
from batchyard.sampling.samples import AttemptUse


class LocalRun(ScheduledRun):
    """A run on this machine. See RunEngine for the contract."""

    log_polling = Polling(0.2, 0.2)

    def __init__(self, record: RunRecord, clock: Callable[[], float] = time.time) -> None:
        super().__init__(record, clock)
        self._log_reader: reading.LogReader | None = None

    @property
    def _settings(self) -> LocalSettings:
        settings: LocalSettings = self._record.settings
        return settings

    def close(self) -> None:
        super().close()
        self._log_reader = None

    def _execute(
        self, watcher: Watcher, last_request: int, *, only_stops: bool, supervise: Supervise
    ) -> None:
        # Others only read the run, and need no scheduler.
        from batchyard.engines.local.site import open_site
        from batchyard.engines.scheduled.execution import Execution

        with open_site(
            self._record, self._store, os.environ, must_enter_workspace=not only_stops
        ) as site:
            Execution(self._record, self._store, site, self._clock).run(watcher, last_request)

    def scale(self, step: str, children: int) -> int:
        self._store.request_scale(step, children)
        plan, settings = self._plan, self._settings
        capacity = step_limits.fit_capacity(
            plan, settings.capacity, self._store.scales(), settings.limited
        )
        job = replace(plan.job(step), max_running=children)
        holder = self.holder
        open_files = machine.max_open_files(holder.pid if holder else 0)
        room = planning.count_slots(replace(plan, jobs=(job,)), capacity)[step]
        return min(room, step_limits.max_children(open_files))

    def fetch(self, folder: Path | None = None) -> tuple[int, Path]:
        raise InputError(
            f"run {self._record.run_id} is on this machine: its files are in "
            f"{self._settings.workspace}"
        )

    def overview(self) -> Overview:
        excesses = memory_use.from_text(self._store.value("memory_use"))
        return replace(
            super().overview(), memory_excesses=tuple(MemoryExcess(*row) for row in excesses)
        )

    def running_children(self, jobs: Sequence[JobDetail]) -> list[tuple[str, int]] | None:
        if self._settings.runner != "process":
            return None
        holder = self.holder
        steps = {job.step for job in jobs}
        return [
            (planned.step, planned.index_in_step(child))
            for number, child in running.find_children(holder.pid if holder else None)
            if number < len(self._plan.jobs)
            for planned in [self._plan.jobs[number]]
            if planned.step in steps and child < planned.size
        ]

    def running_uses(self) -> Sequence[AttemptUse]:
        # The file of a process that died is left over.
        if self.holder is None:
            return []
        # The file is some seconds old. Attempts that have ended since are in the store.
        numbers = {row.step: row.number for row in self._store.jobs()}
        return [
            attempt
            for attempt in running_use.read(self._folder.running_use)
            if attempt.step in numbers and not self._has_ended(attempt, numbers[attempt.step])
        ]

    def _has_ended(self, attempt: AttemptUse, job: int) -> bool:
        child = child_of(self._plan.job(attempt.step), attempt.index_in_step)
        return child is None or self._store.has_use(job, child, attempt.attempt)

    def commands(
        self, step: str | None = None, number: int | None = None, *, failed_only: bool = False
    ) -> Iterator[CommandDetail]:
        for row in self._store.jobs():
            if step in (None, row.step):
                planned = self._plan.job(row.step)
                yield from reading.command_details(
                    planned, self._store, row, number, failed_only=failed_only
                )

    def durations(self, step: str) -> Iterator[tuple[int, float]]:
        planned = self._plan.job(step)
        has_rows = planned.has_several_commands
        for row in self._store.jobs():
            if row.step == step:
                for number, seconds in self._store.durations(row.number, of_commands=has_rows):
                    commands = range(number, number + 1)
                    if not has_rows:
                        commands = planned.commands_of(number)
                    # A child can have no command.
                    if commands:
                        yield commands[0], seconds

    def logs(
        self, step: str | None = None, index: int | None = None, *, failed_only: bool = False
    ) -> Iterator[LogChunk]:
        return self.log_reader.read(step, index, failed_only=failed_only)

    @property
    def log_reader(self) -> reading.LogReader:
        if self._log_reader is None:
            self._log_reader = reading.LogReader(self._folder, self._store, self._plan)
        return self._log_reader

    def unfinished(self) -> Unfinished:
        children: dict[str, list[int]] = {}
        commands_done: dict[str, list[int]] = {}
        for row in self._store.jobs():
            planned = self._plan.job(row.step)
            succeeded = self.succeeded_children(row)
            children[row.step] = [
                planned.index_in_step(child) for child in range(row.size) if child not in succeeded
            ]
            commands_done[row.step] = self._store.succeeded_commands(row.number)
        return Unfinished(children, commands_done)

    def waits(self, jobs: Sequence[JobDetail]) -> None:
        return None

    def setup(self) -> RunSetup:
        settings = self._settings
        return RunSetup(settings.runner, str(settings.workspace), settings.capacity)
