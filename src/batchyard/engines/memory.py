"""An engine without processes or files: the outcome of every command is scripted.

For tests of pipelines and of batchyard itself. Jobs, arrays, dependencies, retries and timeouts
follow the same rules as on the other engines, on a clock that only moves when commands "run":

    from batchyard import Pipeline
    from batchyard.engines.memory import MemoryEngine, Result

    engine = MemoryEngine({"train:3": Result(exit_code=1, output=b"out of data\\n")})
    run = Pipeline.load("pipeline.yaml").run(engine=engine)
    assert run.status()["state"] == "FAILED"
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from batchyard import plan as planning
from batchyard.batch.changes import Change, JobSettled, Settled, Start, Stop
from batchyard.batch.jobs import (
    Dependency,
    DependencyType,
    Job,
    JobState,
    Outcome,
    Resources,
    StatusReason,
)
from batchyard.batch.queues import ComputeEnvironment, Queue
from batchyard.batch.scheduler import Scheduler
from batchyard.embedded import children
from batchyard.engines.base import (
    DEFAULT_GRACE_S,
    AttemptDetail,
    Engine,
    JobDetail,
    LogChunk,
    Overview,
    Polling,
    PreparedRun,
    RetryRequest,
    RunRecord,
    RunRequest,
    RunSetup,
    RunState,
    Say,
    Unfinished,
    Watcher,
    new_run_id,
    say_nothing,
)
from batchyard.errors import InputError, OperationalError
from batchyard.folder import DRAFT_PREFIX
from batchyard.pipeline import Pipeline
from batchyard.plan import Plan, PlannedJob
from batchyard.shard import Turn

#: More GPUs than a test needs, and few enough to count.
_MAX_GPUS = 10_000
_SIGTERM_EXIT_CODE = 143
#: Duration of a command for which no other is scripted, if its timeout allows it.
_USUAL_S = 1.0
_S3 = "s3://"


@dataclass(frozen=True, slots=True)
class Result:
    """What one command does. Raises InputError for what no command can do."""

    #: None where the command never started, or its host was lost; ``status_reason`` says why.
    exit_code: int | None = 0
    output: bytes = b""
    #: Duration on the engine's clock. Infinite: until it is released, stopped or timed out.
    seconds: float = _USUAL_S
    status_reason: str = StatusReason.EXITED
    reason: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.output, bytes):
            raise InputError(f"Result: output is {self.output!r}", hint='write bytes: b"text"')
        if not self.seconds >= 0:  # also for NaN
            raise InputError(f"Result: seconds is {self.seconds!r}", hint="write 0 or more")


#: A command that runs until ``MemoryEngine.release``, a stop or its timeout.
HOLD = Result(seconds=math.inf)


@dataclass(frozen=True, slots=True)
class Call:
    """One command that is about to run."""

    step: str
    #: Number of the child in its step.
    index: int
    attempt: int
    command: str
    #: Environment variables that the engine sets for the child.
    environ: Mapping[str, str]


#: Returns what a command does; or a table: `step` or `step:index` -> result or exit code, or a
#: list of these, one for each attempt.
Script = Callable[[Call], "Result | int"] | Mapping[str, "Result | int | Sequence[Result | int]"]


def _look_up(script: Script, call: Call, usual_s: float) -> Result:
    """Return what the command does. ``usual_s``: its duration if only its exit code is scripted."""
    if callable(script):
        entry: Result | int | Sequence[Result | int] = script(call)
    else:
        entry = script.get(f"{call.step}:{call.index}", script.get(call.step, 0))
    if isinstance(entry, Sequence):
        entry = entry[min(call.attempt, len(entry)) - 1]
    if not isinstance(entry, Result | int):
        raise InputError(
            f"the script returns {entry!r} for {call.step}:{call.index}",
            hint="return a Result or an exit code",
        )
    return entry if isinstance(entry, Result) else Result(exit_code=entry, seconds=usual_s)


def _check_script(script: Script, pipeline: Pipeline) -> None:
    """Raise InputError for entries of a table that no command could follow."""
    if callable(script):
        return
    if not isinstance(script, Mapping):
        raise InputError(f"the script is {script!r}", hint="write a table or a function")
    sizes = {step.name: step.size for step in pipeline.steps}
    for key, entry in script.items():
        step, colon, index = str(key).partition(":")
        if step not in sizes:
            raise InputError(
                f"the script has an entry {key!r}, and pipeline {pipeline.name} has no such step",
                hint=f"its steps are: {', '.join(sizes)}",
            )
        if colon and not (index.isdecimal() and int(index) < sizes[step]):
            raise InputError(
                f"the script has an entry {key!r}, and step {step!r} has no such child",
                hint=f"its children are 0 to {sizes[step] - 1}",
            )
        entries = entry if isinstance(entry, list | tuple) else (entry,)
        if not entries or not all(isinstance(item, Result | int) for item in entries):
            raise InputError(
                f"the entry {key!r} of the script is {entry!r}",
                hint="write an exit code, a Result, or a list with one of these for each attempt",
            )


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """What the commands of a run believe to use."""

    #: A folder, or an s3:// prefix. It need not exist.
    workspace: str
    capacity: Resources


class MemoryEngine:
    """See the module. One object knows the runs that were begun with it, and no others."""

    name = "memory"

    def __init__(self, script: Script | None = None, *, is_recorded: bool = False) -> None:
        """``is_recorded``: also write run.json to a `.batchyard` folder, as other engines do."""
        self.script: Script = script if script is not None else {}
        self.is_recorded = is_recorded
        self._runs: dict[str, Simulation] = {}

    def release(self, run_id: str, step: str, index: int = 0, result: Result | None = None) -> None:
        """End a held command of this child, and go on with the run.

        Raises InputError if the child holds no command.
        """
        self.simulation_of(run_id).release(step, index, result or Result())

    # -- the contract --------------------------------------------------------------------------

    def prepare(self, request: RunRequest) -> PreparedRun:
        if request.environment is not None or request.on_demand:
            raise InputError(
                "an environment and on-demand instances are for runs on AWS",
                hint="leave them out: a rehearsal needs none",
            )
        if request.detached and not self.is_recorded:
            raise InputError(
                "a rehearsal lives in the process that begins it, so it cannot be detached",
                hint="leave --detach out: a rehearsal takes no time",
            )
        _check_script(self.script, request.pipeline)
        offer = request.offer
        plan = request.plan if offer.use_gpus else planning.without_gpus(request.plan)
        settings = MemorySettings(
            _find_workspace(request.pipeline, offer.workspace),
            _limit(_enough_for(plan), plan, offer.cpus, offer.memory_mib, offer.gpus),
        )
        notes = ("this is a rehearsal: no command is executed",)
        return PreparedRun(plan, settings, new_run_id(plan), notes)

    def prepare_retry(self, old: RunRecord, request: RetryRequest, say: Say) -> PreparedRun:
        if request.on_demand:
            raise InputError(
                "on-demand instances are for runs on AWS", hint="leave them out of a rehearsal"
            )
        run = self.open(old)
        if run.overview().state is RunState.RUNNING:
            raise InputError(f"run {old.run_id} is still running", hint="stop it first")
        unfinished = run.unfinished()
        if not any(unfinished.children.values()):
            raise InputError(f"run {old.run_id} has nothing to retry: everything in it succeeded")
        plan = planning.select_unfinished(run.plan, unfinished.children)
        capacity = _limit(old.settings.capacity, plan, request.cpus, request.memory_mib)
        settings = replace(old.settings, capacity=capacity)
        return PreparedRun(plan, settings, new_run_id(plan), commands_done=unfinished.commands_done)

    def prepare_resume(
        self, record: RunRecord, request: RetryRequest, *, detached: bool
    ) -> RunRecord:
        state = self.open(record).overview().state
        if state is not RunState.RUNNING:
            raise InputError(f"run {record.run_id} is over: {state.value}")
        if request.cpus or request.memory_mib:
            raise InputError(
                "--cpus and --memory cannot change while a rehearsal runs",
                hint="stop the run, and retry it with them",
            )
        return record

    def create(self, record: RunRecord, commands_done: Mapping[str, Sequence[int]]) -> None:
        run_id = record.run_id.removeprefix(DRAFT_PREFIX)
        self._runs[run_id] = Simulation(run_id, record, commands_done, lambda: self.script)

    def open(self, record: RunRecord) -> MemoryRun:
        return MemoryRun(record, self)

    def settings_to_json(self, settings: Any) -> dict[str, Any]:
        return {"setting": asdict(settings)}

    def settings_from_json(self, document: Mapping[str, Any]) -> MemorySettings:
        members = document["setting"]
        return MemorySettings(members["workspace"], Resources(**members["capacity"]))

    def download_record(self, home: Path, environment: str, run_id: str) -> str | None:
        return None

    def adopt(self, record: RunRecord) -> None:
        """Do nothing: no other process has runs of this engine."""

    def list_runs(self, home: Path, environment: str) -> list[str] | None:
        return None

    def has_run(self, run_id: str) -> bool:
        """Return whether the run was begun with this object."""
        return run_id in self._runs

    def simulation_of(self, run_id: str) -> Simulation:
        """Return the state of a run. Raises OperationalError for a run of another object."""
        if run_id not in self._runs:
            raise OperationalError(
                f"run {run_id} was a rehearsal in the memory of another process",
                hint="run it again, or delete its folder",
            )
        return self._runs[run_id]


#: The engine of `batchyard run --engine memory`: a rehearsal, of which nothing is kept.
ENGINE = MemoryEngine()
_CONTRACT: Engine = ENGINE  # mypy compares the class with the contract here


class MemoryRun:
    """One run in memory. See RunEngine for the contract."""

    status_polling = log_polling = Polling(0.01, 0.01)
    answer_source = missing = ""
    is_over_by_record = False

    def __init__(self, record: RunRecord, engine: MemoryEngine) -> None:
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

    def execute(self, watcher: Watcher, *, carry_out_old_stops: bool = False) -> None:
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

    def fetch(self, folder: Path | None = None) -> tuple[int, Path]:
        raise InputError(f"run {self._record.run_id} is a rehearsal: it has no files")

    @property
    def job_ids(self) -> list[str]:
        return list(self._simulation.jobs)

    def describe(self, job_ids: Sequence[str]) -> list[JobDetail]:
        known = self._simulation.jobs
        return [self._simulation.describe(job_id) for job_id in job_ids if job_id in known]

    def attempts(
        self, job_ids: Sequence[str], *, failed_only: bool = False
    ) -> Iterator[AttemptDetail]:
        order = {job_id: number for number, job_id in enumerate(self._simulation.jobs)}
        chosen = [
            attempt
            for attempt in self._simulation.attempts
            if attempt.job_id in job_ids
            and (not failed_only or (attempt.state is JobState.FAILED and attempt.attempt))
        ]
        yield from sorted(chosen, key=lambda a: (order[a.job_id], a.index, a.attempt))

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

    def unfinished(self) -> Unfinished:
        return self._simulation.unfinished()

    def waits(self, jobs: Sequence[JobDetail]) -> None:
        return None

    def setup(self) -> RunSetup:
        settings: MemorySettings = self._record.settings
        return RunSetup("memory", settings.workspace, settings.capacity)

    @property
    def is_deletable(self) -> bool:
        # Nothing is left of a run that was in the memory of another process.
        is_known = self._engine.has_run(self._record.run_id)
        return not is_known or self.overview().state is not RunState.RUNNING


@dataclass(slots=True)
class _SimulatedJob:
    """One job of a run in memory."""

    id: str
    planned: PlannedJob
    created_ms: int
    commands_done: set[int]
    #: Names and values of the environment that all children share.
    environ: Mapping[str, str]
    attempts: int = 0
    started_ms: int | None = None
    ended_ms: int | None = None
    status_reason: str = ""


@dataclass(slots=True)
class _Attempt:
    """An attempt under way, and the command that runs."""

    start: Start
    started_ms: int
    turn: Turn
    outcome: Outcome = field(default_factory=lambda: Outcome(0))
    command_number: int = -1
    is_held: bool = False


class Simulation:
    """The scheduler, the clock and everything that has happened in one run."""

    def __init__(
        self,
        run_id: str,
        record: RunRecord,
        commands_done: Mapping[str, Sequence[int]],
        script: Callable[[], Script],
    ) -> None:
        self.plan = record.plan
        self._script = script
        self._now_ms = int(time.time() * 1000)
        settings: MemorySettings = record.settings
        self.attempts: list[AttemptDetail] = []
        self.chunks: list[LogChunk] = []
        self._was_stopped = False
        self._running: dict[tuple[str, int], _Attempt] = {}
        #: (when a command ends, order of the commands, its attempt, its result).
        self._ends: list[tuple[int, int, _Attempt, Result]] = []
        self._order = itertools.count()
        self._scheduler = Scheduler(
            [Queue(children.QUEUE_NAME, (children.ENVIRONMENT_NAME,))],
            [ComputeEnvironment(children.ENVIRONMENT_NAME, settings.capacity)],
            {job.step: job.max_running for job in self.plan.jobs if job.max_running is not None},
            fail_fast=self.plan.fail_fast,
        )
        self.jobs: dict[str, _SimulatedJob] = {}
        folder = replace(record.folder, path=record.folder.path.with_name(run_id))
        for planned in self.plan.jobs:
            job_id = f"{run_id}-{planned.step}"
            self.jobs[job_id] = _SimulatedJob(
                id=job_id,
                planned=planned,
                created_ms=self._now_ms,
                commands_done=set(commands_done.get(planned.step, ())),
                environ={
                    **children.shared_environment(planned, folder, Path(settings.workspace)),
                    # A Path would join the slashes of s3://.
                    "BATCHYARD_WORKSPACE": settings.workspace,
                },
            )
            self._perform(self._scheduler.submit(self._core_job(job_id, planned, run_id)))

    def advance(self) -> None:
        """Let commands run until all have ended, or only held ones are left."""
        while True:
            while starts := self._scheduler.place():
                for start in starts:
                    self._begin(start)
            timeout_ms = self._next_timeout_ms()
            if timeout_ms is not None and (not self._ends or timeout_ms <= self._ends[0][0]):
                self._now_ms = max(self._now_ms, timeout_ms)
                self._perform(self._scheduler.tick(self._now_ms))
            elif self._ends:
                self._end_next_command()
            else:
                return

    def release(self, step: str, index: int, result: Result) -> None:
        held = {
            (planned.step, planned.index_in_step(child)): attempt
            for (job_id, child), attempt in self._running.items()
            if attempt.is_held
            for planned in [self.jobs[job_id].planned]
        }
        if (step, index) not in held:
            names = ", ".join(f"{name}:{number}" for name, number in held) or "none"
            raise InputError(
                f"child {step}:{index} holds no command", hint=f"children that do: {names}"
            )
        self._write(held[step, index], result.output)
        self._end_command(held[step, index], result)
        self.advance()

    def stop(self, job_ids: Sequence[str], reason: str) -> None:
        if not self._scheduler.is_over:
            self._was_stopped |= set(job_ids) >= set(self.jobs)
        # Last first: a job that depends on another stopped one then fails for this reason.
        for job_id in reversed([job_id for job_id in self.jobs if job_id in job_ids]):
            self._perform(self._scheduler.terminate(job_id, reason))
        self.advance()

    # -- looking -------------------------------------------------------------------------------

    def describe(self, job_id: str) -> JobDetail:
        job, summary = self.jobs[job_id], self._scheduler.summary(job_id)
        return JobDetail(
            id=job_id,
            step=job.planned.step,
            state=summary.state,
            status_reason=job.status_reason,
            size=job.planned.size,
            counts=summary.counts,
            attempts=job.attempts,
            created_ms=job.created_ms,
            started_ms=job.started_ms,
            ended_ms=job.ended_ms,
        )

    def overview(self) -> Overview:
        jobs = tuple(self.describe(job_id) for job_id in self.jobs)
        starts = [job.started_ms for job in jobs if job.started_ms is not None]
        state = RunState.RUNNING
        if self._scheduler.is_over:
            is_good = all(job.state is JobState.SUCCEEDED for job in jobs)
            bad = RunState.STOPPED if self._was_stopped else RunState.FAILED
            state = RunState.SUCCEEDED if is_good else bad
        ended_ms = None if state is RunState.RUNNING else self._now_ms
        return Overview(state, jobs, min(starts, default=None), ended_ms)

    def unfinished(self) -> Unfinished:
        left, done = {}, {}
        for job in self.jobs.values():
            states = [
                self._scheduler.child_state(job.id, child) for child in range(job.planned.size)
            ]
            left[job.planned.step] = [
                job.planned.index_in_step(child)
                for child, state in enumerate(states)
                if state is not JobState.SUCCEEDED
            ]
            done[job.planned.step] = sorted(job.commands_done)
        return Unfinished(left, done)

    # -- running -------------------------------------------------------------------------------

    def _core_job(self, job_id: str, planned: PlannedJob, run_id: str) -> Job:
        is_array = planned.size > 1
        return Job(
            id=job_id,
            name=planned.step,
            queue=children.QUEUE_NAME,
            resources=planned.resources,
            array_size=planned.size if is_array else None,
            depends_on=tuple(
                Dependency(
                    f"{run_id}-{need.step}",
                    DependencyType.N_TO_N if need.each and is_array else DependencyType.WHOLE,
                )
                for need in planned.needs
            ),
            retry=planned.retry,
            timeout_s=planned.timeout_s,
            consumables=((planned.step, 1),) if planned.max_running is not None else (),
        )

    def _begin(self, start: Start) -> None:
        job = self.jobs[start.job_id]
        commands = job.planned.commands_of(start.child)
        turn = Turn(commands, job.commands_done, keep_going=job.planned.keep_going)
        attempt = _Attempt(start, self._now_ms, turn)
        self._running[start.job_id, start.child] = attempt
        self._scheduler.attempt_started(start.job_id, start.child, self._now_ms)
        job.started_ms = self._now_ms if job.started_ms is None else job.started_ms
        self._start_next_command(attempt)

    def _start_next_command(self, attempt: _Attempt) -> None:
        """Start the attempt's next command, or end the attempt after its last one."""
        number = attempt.turn.next()
        if number is None:
            self._end(attempt, attempt.outcome)
            return
        job = self.jobs[attempt.start.job_id]
        call = self._call(attempt, job, number)
        result = _look_up(self._script(), call, _usual_duration_s(job.planned, attempt.start.child))
        attempt.command_number = number
        attempt.is_held = math.isinf(result.seconds)
        self._write(attempt, result.output)
        if not attempt.is_held:
            ends_ms = self._now_ms + int(result.seconds * 1000)
            heapq.heappush(self._ends, (ends_ms, next(self._order), attempt, result))

    def _end_next_command(self) -> None:
        ends_ms, _, attempt, result = heapq.heappop(self._ends)
        # An attempt that was stopped or timed out has ended already.
        if self._running.get((attempt.start.job_id, attempt.start.child)) is attempt:
            self._now_ms = max(self._now_ms, ends_ms)
            self._end_command(attempt, result)

    def _end_command(self, attempt: _Attempt, result: Result) -> None:
        attempt.is_held = False
        outcome = Outcome(result.exit_code, result.status_reason, result.reason)
        if outcome.exit_code is None:  # the host is lost, and the other commands with it
            self._end(attempt, outcome)
            return
        if outcome.is_success:
            self.jobs[attempt.start.job_id].commands_done.add(attempt.command_number)
        elif attempt.outcome.is_success:
            attempt.outcome = outcome
        attempt.turn.record_exit(outcome.exit_code)
        self._start_next_command(attempt)

    def _call(self, attempt: _Attempt, job: _SimulatedJob, number: int) -> Call:
        planned, start = job.planned, attempt.start
        index = planned.index_in_step(start.child)
        command = planned.command
        if command is None:
            command = self.plan.lists[planned.step][number]
        environ = {
            **job.environ,
            "AWS_BATCH_JOB_ID": f"{job.id}:{start.child}" if planned.size > 1 else job.id,
            "AWS_BATCH_JOB_ATTEMPT": str(start.attempt),
        }
        if planned.is_array:
            environ["AWS_BATCH_JOB_ARRAY_INDEX"] = str(index)
        return Call(planned.step, index, start.attempt, command, environ)

    def _write(self, attempt: _Attempt, output: bytes) -> None:
        if output:
            planned = self.jobs[attempt.start.job_id].planned
            index = planned.index_in_step(attempt.start.child)
            self.chunks.append(LogChunk(planned.step, index, attempt.start.attempt, output))

    def _next_timeout_ms(self) -> int | None:
        """Return when the next attempt under way times out; None where none does."""
        due_ms = [
            attempt.started_ms + timeout_s * 1000
            for (job_id, _), attempt in self._running.items()
            if (timeout_s := self.jobs[job_id].planned.timeout_s) is not None
        ]
        return min(due_ms, default=None)

    def _end(self, attempt: _Attempt, outcome: Outcome) -> None:
        job_id, child = attempt.start.job_id, attempt.start.child
        job = self.jobs[job_id]
        del self._running[job_id, child]
        changes = self._scheduler.attempt_ended(job_id, child, outcome)
        # The first change is about this child: it has its final state, or is tried again.
        final = changes[0] if isinstance(changes[0], Settled) else None
        job.attempts += 1
        self.attempts.append(
            AttemptDetail(
                job_id=job_id,
                step=job.planned.step,
                index=job.planned.index_in_step(child),
                attempt=attempt.start.attempt,
                state=final.state if final else None,
                exit_code=outcome.exit_code,
                reason=outcome.reason,
                status_reason=final.status_reason if final else outcome.status_reason,
                started_ms=attempt.started_ms,
                ended_ms=self._now_ms,
                user_s=0.0,
                system_s=0.0,
                max_rss_kib=0,
                gpus=attempt.start.gpus,
            )
        )
        self._perform(changes[1:])

    def _perform(self, changes: Sequence[Change]) -> None:
        for change in changes:
            job = self.jobs[change.job_id]
            if isinstance(change, Stop):
                attempt = self._running.get((change.job_id, change.child))
                if attempt is not None:
                    self._end(attempt, Outcome(_SIGTERM_EXIT_CODE))
            elif isinstance(change, JobSettled):
                job.status_reason, job.ended_ms = change.status_reason, self._now_ms


def _usual_duration_s(planned: PlannedJob, child: int) -> float:
    """Return a duration for each command of a child, such that the child does not time out."""
    if planned.timeout_s is None:
        return _USUAL_S
    return min(_USUAL_S, planned.timeout_s / (len(planned.commands_of(child)) + 1))


def _find_workspace(pipeline: Pipeline, override: str | None) -> str:
    """Return the workspace that commands are told: a folder, or an s3:// prefix."""
    address = override or pipeline.workspace or ""
    if not address.startswith(_S3):
        folder = Path.cwd() if override else pipeline.folder
        return str((folder / address).absolute())
    if not address.removeprefix(_S3).partition("/")[0]:
        raise InputError(f"{address!r} names no bucket", hint="write s3://bucket/prefix/")
    return address


def _limit(
    capacity: Resources,
    plan: Plan,
    cpus: int | None,
    memory_mib: int | None,
    gpus: int | None = None,
) -> Resources:
    """Return the capacity with other amounts. Raises InputError if a child does not fit."""
    limited = Resources(
        cpus or capacity.vcpus,
        memory_mib or capacity.memory_mib,
        capacity.gpus if gpus is None else gpus,
    )
    misfits = planning.find_misfits(plan, limited)
    if misfits:
        raise InputError(
            f"the pipeline can never run with {limited}:\n  " + "\n  ".join(misfits),
            hint="ask for less for a child, or let the run use more",
        )
    return limited


def _enough_for(plan: Plan) -> Resources:
    """Return a capacity with room for all children at once, but for GPUs beyond a limit."""
    return Resources(
        sum(job.size * job.resources.vcpus for job in plan.jobs),
        sum(job.size * job.resources.memory_mib for job in plan.jobs),
        min(_MAX_GPUS, sum(job.size * job.resources.gpus for job in plan.jobs)),
    )
