"""A run in memory, through the contract of engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from batchyard import plan as planning
from batchyard.batch.jobs import JobState
from batchyard.engines.base import (
    DEFAULT_GRACE_S,
    AttemptDetail,
    CommandDetail,
    Fallback,
    FallbackRun,
    JobDetail,
    LogChunk,
    Overview,
    Polling,
    RunRecord,
    RunSetup,
    RunState,
    Say,
    Supervise,
    Unfinished,
    Watcher,
    say_nothing,
    supervise_nothing,
)
from batchyard.engines.memory.simulation import MemorySettings, Simulation
from batchyard.errors import InputError, OperationalError
from batchyard.plan import Plan
from batchyard.sampling.samples import AttemptUse, SampledStep


class Simulations(Protocol):
    """The engine, which has the simulations of the runs that were begun with it."""

    def has_run(self, run_id: str) -> bool: ...

    def simulation_of(self, run_id: str) -> Simulation: ...


class MemoryRun:
    """One run in memory. See RunEngine for the contract."""

    status_polling = log_polling = Polling(0.01, 0.01)
    answer_source = missing = ""
    is_over_by_record = False

    def __init__(self, record: RunRecord, engine: Simulations) -> None:
        self._record = record
        self._engine = engine
        #: Positions of the chunks that ``read`` has returned.
        self._read_positions: set[int] = set()

    @property
    def _simulation(self) -> Simulation:
        return self._engine.simulation_of(self._record.run_id)

    @property
    def plan(self) -> Plan:
        return self._simulation.plan

    def close(self) -> None: ...

    def submit(self, plan: Plan) -> list[str]:
        return self.job_ids

    def start(self, say: Say = say_nothing) -> None:
        self._simulation.advance()

    def execute(
        self,
        watcher: Watcher,
        *,
        carry_out_old_stops: bool = False,
        supervise: Supervise = supervise_nothing,
    ) -> None:
        self._simulation.advance()
        watcher.jobs_changed(self.describe(self.job_ids))
        for attempt in self.attempts(self.job_ids):
            if attempt.state is not JobState.SUCCEEDED and attempt.attempt:
                watcher.attempt_failed(attempt)
        if self.overview().state is RunState.RUNNING:
            raise OperationalError(
                f"run {self._record.run_id} waits for held commands",
                hint="release them with MemoryEngine.release",
            )

    def stop(self, job_ids: Sequence[str], reason: str, grace_s: float = DEFAULT_GRACE_S) -> float:
        self._simulation.stop(job_ids, reason)
        return grace_s

    def hold(self, reason: str) -> None:
        """Do nothing: the engine keeps no caps."""

    def leave_spot(self, step: str, reason: str) -> bool:
        """Do nothing: there are no spot instances."""
        return False

    def find_fallback(self) -> Fallback | None:
        return None

    def record_fallback(self, fallback: FallbackRun) -> bool:
        return False

    def fetch(self, folder: Path | None = None) -> tuple[int, Path]:
        raise InputError(f"run {self._record.run_id} is a rehearsal: it has no files")

    @property
    def job_ids(self) -> list[str]:
        return list(self._simulation.jobs)

    def describe(self, job_ids: Sequence[str]) -> list[JobDetail]:
        known_jobs = self._simulation.jobs
        return [self._simulation.describe(job_id) for job_id in job_ids if job_id in known_jobs]

    def attempts(
        self,
        job_ids: Sequence[str],
        *,
        failed_only: bool = False,
        index: int | None = None,
        since_ms: int | None = None,
    ) -> Iterator[AttemptDetail]:
        order = {job_id: number for number, job_id in enumerate(self._simulation.jobs)}
        chosen = [
            attempt
            for attempt in self._simulation.attempts
            if attempt.job_id in job_ids
            and (not failed_only or (attempt.state is JobState.FAILED and attempt.attempt))
            and index in (None, attempt.index)
            and (since_ms is None or attempt.ended_ms >= since_ms)
        ]
        yield from sorted(chosen, key=lambda a: (order[a.job_id], a.index, a.attempt))

    def running_children(self, jobs: Sequence[JobDetail]) -> list[tuple[str, int]]:
        steps = {job.step for job in jobs}
        return [child for child in self._simulation.running_children if child[0] in steps]

    def running_uses(self) -> Sequence[AttemptUse]:
        return ()

    def step_uses(self, *, asks: bool = True) -> Mapping[str, SampledStep]:
        return {}

    def commands(
        self, step: str | None = None, number: int | None = None, *, failed_only: bool = False
    ) -> Iterator[CommandDetail]:
        order = {job.step: position for position, job in enumerate(self.plan.jobs)}
        commands = self._simulation.commands
        for key in sorted(commands, key=lambda key: (order[key[0]], key[1])):
            command = commands[key]
            is_selected = step in (None, command.step) and number in (None, command.number)
            if is_selected and (not failed_only or command.state is JobState.FAILED):
                yield command

    def overview(self) -> Overview:
        return self._simulation.overview()

    def logs(
        self, step: str | None = None, index: int | None = None, *, failed_only: bool = False
    ) -> Iterator[LogChunk]:
        for position in self._find_chunks(step, index, failed_only):
            yield self._simulation.chunks[position]

    def _find_chunks(self, step: str | None, index: int | None, failed_only: bool) -> list[int]:
        """Return the positions of the chunks, ordered by step, child and attempt."""
        failed = {(a.step, a.index) for a in self.attempts(self.job_ids, failed_only=True)}
        order = {job.step: number for number, job in enumerate(self.plan.jobs)}
        chunks = self._simulation.chunks
        positions = [
            position
            for position, chunk in enumerate(chunks)
            if step in (None, chunk.step)
            and index in (None, chunk.index)
            and (not failed_only or (chunk.step, chunk.index) in failed)
        ]
        return sorted(
            positions, key=lambda p: (order[chunks[p].step], chunks[p].index, chunks[p].attempt)
        )

    @property
    def log_reader(self) -> MemoryRun:
        return self

    def read(
        self, step: str | None = None, index: int | None = None, *, failed_only: bool = False
    ) -> Iterator[LogChunk]:
        for position in self._find_chunks(step, index, failed_only):
            if position not in self._read_positions:
                self._read_positions.add(position)
                yield self._simulation.chunks[position]

    def follow(
        self,
        jobs: Sequence[JobDetail],
        step: str | None = None,
        index: int | None = None,
        *,
        failed_only: bool = False,
    ) -> Iterator[LogChunk]:
        return self.read(step, index, failed_only=failed_only)

    def tail(self, attempt: AttemptDetail, lines: int) -> list[str]:
        chunks = [c for c in self.logs(attempt.step, attempt.index) if c.attempt == attempt.attempt]
        return b"".join(c.data for c in chunks).decode(errors="replace").splitlines()[-lines:]

    def read_command(self, command: CommandDetail, last_bytes: int | None = None) -> bytes:
        chunks = self.logs(command.step, command.index)
        output = b"".join(c.data for c in chunks if c.attempt == command.child_attempt)
        stop = None if command.log_length is None else command.log_offset + command.log_length
        return output[command.log_offset : stop][-last_bytes if last_bytes else 0 :]

    def sizes(self, step: str, index: int) -> dict[int, int]:
        sizes: dict[int, int] = {}
        for chunk in self.logs(step, index):
            sizes[chunk.attempt] = sizes.get(chunk.attempt, 0) + len(chunk.data)
        return sizes

    def read_part(self, step: str, index: int, attempt: int, begin: int, length: int) -> bytes:
        chunks = (chunk.data for chunk in self.logs(step, index) if chunk.attempt == attempt)
        return b"".join(chunks)[begin : begin + length]

    def scale(self, step: str, children: int) -> int:
        self._simulation.scale(step, children)
        settings: MemorySettings = self._record.settings
        job = replace(self.plan.job(step), max_running=children)
        return planning.count_slots(replace(self.plan, jobs=(job,)), settings.capacity)[step]

    def durations(self, step: str) -> Iterator[tuple[int, float]]:
        for command in self.commands(step):
            if command.state is JobState.SUCCEEDED and command.duration_s is not None:
                yield command.number, command.duration_s

    def unfinished(self) -> Unfinished:
        return self._simulation.unfinished()

    def waits(self, jobs: Sequence[JobDetail]) -> None:
        return None

    def setup(self) -> RunSetup:
        settings: MemorySettings = self._record.settings
        return RunSetup("memory", settings.workspace, settings.capacity)

    def usage(self, *, asks: bool = True) -> None:
        return None

    def record_usage(self, overview: Overview) -> None:
        """Do nothing: the hosts cost nothing."""

    def store_prices(self, prices: Mapping[str, Any]) -> None:
        """Do nothing: there are no prices."""

    @property
    def is_deletable(self) -> bool:
        # Nothing is left of a run that was in the memory of another process.
        is_known = self._engine.has_run(self._record.run_id)
        return not is_known or self.overview().state is not RunState.RUNNING
