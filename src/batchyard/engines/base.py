"""The contract of an engine: two protocols, and the values that they exchange.

An ``Engine`` prepares new runs and opens recorded ones; a ``RunEngine`` is one opened run. All
differences between engines are behind these protocols, and one test suite tests every engine.
`engines/__init__.py` lists the engines.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from batchyard import units
from batchyard.batch.jobs import JobState, Resources, StatusReason
from batchyard.errors import InputError
from batchyard.folder import RunFolder
from batchyard.pipeline import Pipeline
from batchyard.plan import Plan, RunPart
from batchyard.quick_dataclasses import NamedTuple, dataclass
from batchyard.sampling.samples import AttemptUse, SampledStep, SampledUse

if TYPE_CHECKING:
    from batchyard.cost_cap import Cap

    # Runs on this machine load nothing about AWS.
    from batchyard.engines.usage import Usage
    from batchyard.environments import Environment

RUNNERS = ("process", "docker")
DEFAULT_GRACE_S = 30.0

#: Shows a sentence to the user, on stderr or not at all.
Say = Callable[[str], None]


def say_nothing(text: str) -> None:
    """Discard the sentence: for callers without a terminal."""


# -- the state of a run ------------------------------------------------------------------------


class RunState(StrEnum):
    #: Not over, whether or not a process executes the run.
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    #: Ended on the request of a user.
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class CommandCounts:
    """Numbers of commands of a job."""

    total: int
    succeeded: int
    #: Commands that failed and are not tried again.
    failed: int


@dataclass(frozen=True, slots=True)
class JobDetail:
    """A job, with the number of its children in each state."""

    id: str
    step: str
    #: In AWS Batch's terms: the parent of an array is PENDING until all its children have ended.
    state: JobState
    status_reason: str
    size: int
    #: Number of children in each state, in the order of JobState.
    counts: tuple[int, ...]
    #: Ended attempts of all children.
    attempts: int
    created_ms: int
    #: When the first child started; None if none has.
    started_ms: int | None
    ended_ms: int | None
    #: None if the engine does not know them without looking at each child.
    commands: CommandCounts | None = None
    #: Whether no child starts any more, though some may still run: the step was stopped.
    is_stopped: bool = False

    def count(self, *states: JobState) -> int:
        return sum(self.counts[list(JobState).index(state)] for state in states)


def measure_cpu_s(recorded_s: float, use: SampledUse | None) -> float:
    """Return the CPU time that was recorded at the end, or else that of the samples."""
    if recorded_s or use is None:
        return recorded_s
    return use.mean_cpus * use.seconds


@dataclass(frozen=True, slots=True)
class AttemptDetail:
    """One attempt that has ended. Attempt 0: the child failed without ever starting."""

    job_id: str
    step: str
    #: Number of the child in its step.
    index: int
    attempt: int
    #: None if another attempt followed.
    state: JobState | None
    exit_code: int | None
    reason: str
    status_reason: str
    started_ms: int | None
    ended_ms: int
    user_s: float
    system_s: float
    max_rss_kib: int
    gpus: tuple[int, ...] = ()
    #: Where the attempt ran: the number of a slot of this machine, which its step has alone, or the
    #: id of a host. Empty if that is not known.
    host: str = ""
    #: What its samples show; None if it was not sampled. Only the attempts of one child that was
    #: asked for have a series.
    use: SampledUse | None = None

    @property
    def cpu_s(self) -> float:
        """CPU time; of a container, that of its samples."""
        return measure_cpu_s(self.user_s + self.system_s, self.use)

    @property
    def peak_memory_kib(self) -> int:
        """The peak of the largest process, or of all processes in a sample, if that is more."""
        return max(self.max_rss_kib, self.use.peak_memory_kib if self.use else 0)

    @property
    def duration_s(self) -> float:
        return 0.0 if self.started_ms is None else (self.ended_ms - self.started_ms) / 1000


@dataclass(frozen=True, slots=True)
class CommandDetail:
    """One command that has ended: its last execution, and how often it was tried."""

    step: str
    #: Number of the command in the step's list, from 0; of a step without a list, of the child.
    number: int
    #: Number of the child in its step.
    index: int
    #: SUCCEEDED, FAILED, or None if another attempt follows.
    state: JobState | None
    #: None if the command has no exit code, for example because its host was lost.
    exit_code: int | None
    #: Why the command failed, where the exit code does not say it.
    reason: str
    #: How often the command was started in this run; 0 if it succeeded in an earlier one.
    attempts: int
    started_ms: int | None
    ended_ms: int | None
    user_s: float
    system_s: float
    #: 0 if the engine does not measure it.
    max_rss_kib: int
    #: Where the command ran: the number of a slot of this machine, or the id of a host.
    host: str
    #: Attempt of the child that has the output, and its position there. No length: to its end.
    child_attempt: int
    log_offset: int = 0
    log_length: int | None = None
    #: What its samples show; None if it was not sampled.
    use: SampledUse | None = None
    #: Up to this amount, ``max_rss_kib`` may be the peak of the engine that started the command.
    memory_floor_kib: int = 0

    @classmethod
    def of_attempt(
        cls, attempt: AttemptDetail, number: int, host: str = "", memory_floor_kib: int = 0
    ) -> CommandDetail:
        """Return the only command of a child, from the last attempt of the child."""
        is_usual = attempt.status_reason == StatusReason.EXITED
        return cls(
            step=attempt.step,
            number=number,
            index=attempt.index,
            state=attempt.state,
            exit_code=attempt.exit_code,
            reason=attempt.reason or ("" if is_usual else attempt.status_reason),
            attempts=attempt.attempt,
            started_ms=attempt.started_ms,
            ended_ms=attempt.ended_ms,
            user_s=attempt.user_s,
            system_s=attempt.system_s,
            max_rss_kib=attempt.max_rss_kib,
            host=host,
            child_attempt=attempt.attempt,
            use=attempt.use,
            memory_floor_kib=memory_floor_kib,
        )

    @property
    def cpu_s(self) -> float:
        """CPU time; in a container, that of its samples."""
        return measure_cpu_s(self.user_s + self.system_s, self.use)

    @property
    def peak_memory_kib(self) -> int:
        """The peak of the largest process, or of all processes in a sample, if that is more."""
        return max(self.max_rss_kib, self.use.peak_memory_kib if self.use else 0)

    @property
    def certain_peak_kib(self) -> int:
        """The peak, without what may be the engine's; 0 if nothing of the command is known."""
        sampled_kib = self.use.peak_memory_kib if self.use else 0
        return self.peak_memory_kib if self.max_rss_kib > self.memory_floor_kib else sampled_kib

    @property
    def duration_s(self) -> float | None:
        if self.started_ms is None or self.ended_ms is None:
            return None
        return (self.ended_ms - self.started_ms) / 1000


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Bytes of one attempt's output, stdout and stderr merged, exactly as they were written."""

    step: str
    index: int
    attempt: int
    data: bytes


@dataclass(frozen=True, slots=True)
class MemoryExcess:
    """Children of one step that succeeded with more memory than they requested."""

    step: str
    #: Number of such children.
    children: int
    #: The child that used most: its number in the step, and its peak.
    index: int
    peak_kib: int
    requested_mib: int


@dataclass(frozen=True, slots=True)
class Fallback:
    """Children that spot instances did not finish, and what depends on them."""

    #: Step -> children that run again, by their numbers in the step.
    children: Mapping[str, Sequence[int]]
    #: Steps whose children go on, on demand. The others stay on spot.
    on_demand_steps: tuple[str, ...]
    #: Children that were reclaimed, and that waited too long for a host.
    reclaimed: int = 0
    waited: int = 0


@dataclass(frozen=True, slots=True)
class FallbackRun:
    """The run in which children of a run go on, on demand."""

    run_id: str
    reclaimed: int
    waited: int


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of a whole run."""

    state: RunState
    jobs: tuple[JobDetail, ...]
    started_ms: int | None
    ended_ms: int | None
    #: Why no process executes the run although it is not over; empty otherwise.
    interruption: str = ""
    #: Empty for an engine that ends such children.
    memory_excesses: tuple[MemoryExcess, ...] = ()
    #: Where children go on that spot instances did not finish; None if there is no such run.
    fallback: FallbackRun | None = None
    #: Children of this run that are on demand because spot instances did not finish them.
    moved_children: int = 0
    #: Why no further child starts, or was started, because of the cap; empty if there is no reason.
    held: str = ""

    @property
    def is_interrupted(self) -> bool:
        return bool(self.interruption)


@dataclass(frozen=True, slots=True)
class Wait:
    """Children of one job that wait for a host."""

    step: str
    count: int
    #: Id of one of these children.
    job_id: str
    #: When the first of them began to wait, or earlier.
    since_ms: int
    #: The command that finds out why, without flags of the command line: "doctor job ...".
    diagnosis: str


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The part of a run that has not succeeded, which a retry runs."""

    #: Step -> children without success, by their numbers in the step.
    children: Mapping[str, Sequence[int]]
    #: Step -> commands that succeeded, of children that did not.
    commands_done: Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class RunSetup:
    """Where a run executes, for reports."""

    #: "process" or "docker", or the name of an engine that has no choice of runners.
    runner: str
    workspace: str
    #: None if the engine does not know the capacity.
    capacity: Resources | None = None
    #: The s3:// prefix of the files that the steps share; empty if they are in a folder.
    workspace_address: str = ""
    #: None for a run on this machine.
    environment: Environment | None = None
    #: Whether the run asked for hosts that are not on spot.
    on_demand: bool = False


class Polling(NamedTuple):
    """Intervals between two reads of a run's state: the first, and the longest."""

    first_s: float
    longest_s: float


class Backoff:
    """Intervals that grow while a state stays the same, and start again when it changes."""

    _GROWTH = 1.5

    def __init__(self, polling: Polling) -> None:
        self._polling = polling
        self._delay_s = polling.first_s
        self._last_seen: object = None

    def next_delay_s(self, seen: object) -> float:
        """Return the seconds to wait after the observation ``seen``."""
        if seen != self._last_seen:
            self._delay_s = self._polling.first_s
        else:
            self._delay_s = min(self._polling.longest_s, self._delay_s * self._GROWTH)
        self._last_seen = seen
        return self._delay_s


# -- requests ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Offer:
    """The resources that a run may use; None means all that the machine has.

    Raises InputError for an amount that no machine can have.
    """

    cpus: int | None = None
    memory_mib: int | None = None
    gpus: int | None = None
    #: Of a list: commands that run at once, also above the vCPUs and the memory of this machine. On
    #: AWS: the number of children that share the list.
    at_once: int | None = None
    #: False: GPU steps run on the CPU, with BATCHYARD_DEVICE=cpu.
    use_gpus: bool = True
    runner: str = "process"
    #: A folder, or on AWS an s3:// prefix, which replaces the workspace of the pipeline. A Path
    #: becomes a text.
    workspace: str | None = None

    def __post_init__(self) -> None:
        _require_count("Offer", "cpus", self.cpus, 1)
        _require_count("Offer", "gpus", self.gpus, 0)
        _require_count("Offer", "at_once", self.at_once, 1)
        _require_memory("Offer", self.memory_mib)
        object.__setattr__(self, "workspace", _workspace_text("Offer", self.workspace))
        if self.runner not in RUNNERS:
            raise InputError(
                f"Offer: there is no runner {self.runner!r}",
                hint='the runners are "process" and "docker"',
            )


def _workspace_text(owner: str, workspace: object) -> str | None:
    """Return the workspace as a text. Raises InputError if it is empty, or no path."""
    if isinstance(workspace, os.PathLike):
        workspace = os.fspath(workspace)
    if workspace is None or (isinstance(workspace, str) and workspace):
        return workspace
    raise InputError(
        f"{owner}: workspace is {workspace!r}",
        hint="name a folder with --workspace DIR, or leave it out",
    )


def _require_count(owner: str, name: str, value: object, minimum: int) -> None:
    if value is not None and not (_is_int(value) and value >= minimum):  # type: ignore[operator]
        raise InputError(
            f"{owner}: {name} is {value!r}",
            hint=f"write a whole number, at least {minimum}, or leave it out",
        )


def _require_memory(owner: str, value: object) -> None:
    """Raise InputError unless the amount is None, or MiB within the limits of ``--memory``."""
    low, high = units.MIN_MEMORY_MIB, units.MAX_MEMORY_MIB
    if value is None or (_is_int(value) and low <= value <= high):  # type: ignore[operator]
        return
    hint = f"write a whole number of MiB, {low} to {high:,}, or leave it out"
    if isinstance(value, str):
        with suppress(units.AmountError):
            hint = f"write it in MiB: memory_mib={units.parse_memory(value)}"
    raise InputError(f"{owner}: memory_mib is {value!r}", hint=hint)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A request for a new run."""

    plan: Plan
    pipeline: Pipeline
    #: The `.batchyard` folder that the run is recorded in.
    home: Path
    offer: Offer = field(default_factory=Offer)
    #: Name of an AWS environment, for the engines that need one.
    environment: str | None = None
    on_demand: bool = False
    #: Whether all children stay on spot instances, whatever the pipeline says.
    spot: bool = False
    #: The most that the run may cost, in US dollars; None for what the pipeline says.
    max_cost_usd: float | None = None
    #: Whether the children that run are ended, too, at the cap.
    stops_at_cap: bool = False
    #: Whether the run must continue after the process that asks for it has ended.
    detached: bool = False
    #: Whether a step that no host can run is refused. The doctor explains such steps instead.
    refuses_misfits: bool = True
    #: Whether samples are taken of what children use.
    is_sampled: bool = True


@dataclass(frozen=True, slots=True)
class RetryRequest:
    """Changes to a run that is retried or resumed; None keeps the value of the run.

    Raises InputError for an amount that no machine can have.
    """

    cpus: int | None = None
    memory_mib: int | None = None
    on_demand: bool = False
    #: A folder of this machine, for a run whose workspace was moved. A Path becomes a text.
    workspace: str | None = None
    #: Only of a retry: the part of the run that is repeated, also if it succeeded; None: all that
    #: has not succeeded.
    part: RunPart | None = None
    #: Only of a retry: what goes on, on demand, of a run whose children spot did not finish.
    fallback: Fallback | None = None
    #: Only of a retry: the most that it may cost; None for the cap of the run, if it has one.
    max_cost_usd: float | None = None
    stops_at_cap: bool = False
    #: Whether samples are taken of what children use; None as in the run.
    is_sampled: bool | None = None

    def __post_init__(self) -> None:
        _require_count("retry", "cpus", self.cpus, 1)
        _require_memory("retry", self.memory_mib)
        object.__setattr__(self, "workspace", _workspace_text("retry", self.workspace))

    def choose_sampling(self, was_sampled: bool) -> bool:
        """Return whether samples are taken. ``was_sampled``: whether they are in the run."""
        return was_sampled if self.is_sampled is None else self.is_sampled


@dataclass(frozen=True, slots=True)
class HostChoice:
    """The hosts of one compute environment, or of one group of a cluster, for a step."""

    #: Instance types, families, and words for families such as `optimal`; empty for Fargate.
    type_names: tuple[str, ...]
    #: The largest size in vCPUs; None if it is not known, or ``max_hosts`` is the limit.
    max_vcpus: int | None = None
    is_spot: bool = False
    #: The largest number of hosts; None if it is not known, or ``max_vcpus`` is the limit.
    max_hosts: int | None = None


#: Tasks of Fargate have no host.
FARGATE_CHOICE = HostChoice(())


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that its engine has checked and can execute. Nothing is recorded yet."""

    plan: Plan
    #: The engine's part of the record.
    settings: Any
    run_id: str
    #: Sentences that the user should read before the run begins.
    notes: tuple[str, ...] = ()
    #: The folder on this machine whose files the commands use; None if there is none.
    workspace: Path | None = None
    #: Step -> commands that an earlier run has finished.
    commands_done: Mapping[str, Sequence[int]] = field(default_factory=dict)
    #: Step -> queue, if the engine has queues.
    queues: Mapping[str, str] = field(default_factory=dict)
    #: Step -> commands that can run at once, of dynamic steps.
    slots: Mapping[str, int] = field(default_factory=dict)
    #: Where the run's hosts are paid for; None for a run that costs nothing.
    environment: Environment | None = None
    #: Step -> hosts that it may get, in the order in which they are tried; empty if unknown.
    hosts: Mapping[str, Sequence[HostChoice]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """A request that a run sends to a service to begin its jobs."""

    service: str
    operation: str
    members: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as it was begun. It is written once; the engine has the state of the run."""

    folder: RunFolder
    plan: Plan
    engine: Engine
    #: The engine's part of the record.
    settings: Any
    created_ms: int
    #: The pipeline file; None if the pipeline was made in Python.
    file: str | None = None
    #: The run whose unfinished part this run executes.
    retry_of: str | None = None
    #: The folder whose files the commands use; empty if the engine's settings have it.
    workspace: str = ""
    #: The most that the run may cost; None for no limit.
    cap: Cap | None = None

    @property
    def run_id(self) -> str:
        return self.folder.run_id

    @property
    def home(self) -> Path:
        return self.folder.home

    def open(self) -> RunEngine:
        return self.engine.open(self)


def new_run_id(plan: Plan) -> str:
    """Return a new run id: `<pipeline>-<yyyymmdd>-<6 hex digits>`."""
    return f"{plan.pipeline}-{time.strftime('%Y%m%d')}-{os.urandom(3).hex()}"


# -- the two protocols -------------------------------------------------------------------------


#: Looks at the state of a run, and does what its rules about costs ask for. Returns the seconds
#: after which it must look again at the latest.
Supervise = Callable[[Overview], float]


def supervise_nothing(overview: Overview) -> float:
    """Return that no further look is needed."""
    return math.inf


class Watcher(Protocol):
    """Receives the progress of a run while it executes, for example to show it."""

    def jobs_changed(self, jobs: Sequence[JobDetail]) -> None:
        """Called several times a second with the jobs that changed since the last call."""

    def attempt_failed(self, attempt: AttemptDetail) -> None:
        """Called for each failed attempt, if the engine observes attempts one by one."""

    def note(self, text: str) -> None:
        """Called with a sentence for the user."""


class LogReader(Protocol):
    """The output of a run's children. Each byte is returned once; later calls return new ones."""

    def read(
        self, step: str | None = None, index: int | None = None, *, failed_only: bool = False
    ) -> Iterator[LogChunk]:
        """Return the new output, ordered by step, child and attempt."""

    def follow(
        self,
        jobs: Sequence[JobDetail],
        step: str | None = None,
        index: int | None = None,
        *,
        failed_only: bool = False,
    ) -> Iterator[LogChunk]:
        """Return the new output of a running run, in an order that is easy to read.

        ``jobs``: the current state of the run's jobs. While they run, output may be left for the
        next call; once they are over, all output is returned.
        """

    def tail(self, attempt: AttemptDetail, lines: int) -> list[str]:
        """Return the last lines of one attempt's output."""

    def read_command(self, command: CommandDetail, last_bytes: int | None = None) -> bytes:
        """Return the output of one command, as far as it can be told from that of others.

        ``last_bytes``: only so many bytes of its end.
        """

    def sizes(self, step: str, index: int) -> dict[int, int]:
        """Return attempt -> bytes of its output so far, of one child's attempts that have begun."""

    def read_part(self, step: str, index: int, attempt: int, begin: int, length: int) -> bytes:
        """Return at most ``length`` bytes of an attempt's output from position ``begin`` on."""

    @property
    def missing(self) -> str:
        """A sentence about output that can no longer be read; empty if nothing is missing."""


class RunEngine(Protocol):
    """One opened run."""

    #: How often to read the state of the run, and its logs.
    status_polling: Polling
    log_polling: Polling

    def submit(self, plan: Plan) -> list[str]:
        """Record the plan's jobs, in order, and return their ids.

        Submitting the jobs again adds nothing and returns the same ids.
        """

    def start(self, say: Say = say_nothing) -> None:
        """Start or resume the run, so that it continues without this process.

        Children that have succeeded are not run again. Raises RunLockedError if another process
        executes the run.
        """

    def execute(
        self,
        watcher: Watcher,
        *,
        carry_out_old_stops: bool = False,
        supervise: Supervise = supervise_nothing,
    ) -> None:
        """Start or resume the run, and return when it is over or interrupted.

        ``carry_out_old_stops``: also carry out stop requests from while no process executed the
        run. ``supervise``: called with each state of a run on paid hosts. Raises KeyboardInterrupt
        if the user leaves a run that continues without this process.
        """

    def stop(self, job_ids: Sequence[str], reason: str, grace_s: float = DEFAULT_GRACE_S) -> float:
        """Request the end of the jobs: SIGTERM, and SIGKILL after ``grace_s`` seconds.

        Returns at once, with the seconds after which the jobs should have ended, or 0 if callers
        should not wait for that. The jobs end as FAILED with ``reason``. Jobs that are over do not
        change. An interrupted run can be stopped too.
        """

    def hold(self, reason: str) -> None:
        """Let no further child start, also none that is tried again. Those that run go on.

        Children of dynamic steps end after the block that they have. The run ends as FAILED.
        Repeating it is harmless, and needed for children that are tried again. Does nothing on an
        engine that keeps no caps.
        """

    def leave_spot(self, step: str, reason: str) -> bool:
        """End the children of a step that wait for spot instances, so that ``find_fallback`` has
        them. None of them may run.

        Returns False, and does nothing, if the step does not wait for spot instances, or has its
        own queue, which it cannot leave.
        """

    def find_fallback(self) -> Fallback | None:
        """Return the children of a failed run that go on, on demand, by the plan's spot rule.

        None if there are none, or if they go on already.
        """

    def record_fallback(self, fallback: FallbackRun) -> bool:
        """Record the run in which children go on. Returns whether it is the first one."""

    def scale(self, step: str, children: int) -> int:
        """Let so many children of a dynamic step run at once; return how many there is room for.

        Returns at once. More children start as soon as there is room. Of fewer, those that run end
        after the command or the block that they have.
        """

    def fetch(self, folder: Path | None = None) -> tuple[int, Path]:
        """Download the files that the steps have written; return their number and folder.

        ``folder``: None for the run's workspace on this machine. Raises InputError if there is
        nothing to download, or no such workspace.
        """

    @property
    def job_ids(self) -> list[str]: ...

    def describe(self, job_ids: Sequence[str]) -> list[JobDetail]:
        """Return the jobs in the order of the ids; unknown ids are left out."""

    def attempts(
        self,
        job_ids: Sequence[str],
        *,
        failed_only: bool = False,
        index: int | None = None,
        since_ms: int | None = None,
    ) -> Iterator[AttemptDetail]:
        """Return the attempts that have ended, by job, child and attempt.

        ``failed_only``: only the last attempt of each failed child that has started. ``index``:
        only of the children with this number in their step. ``since_ms``: only attempts that ended
        at this time or later.
        """

    def running_children(self, jobs: Sequence[JobDetail]) -> Sequence[tuple[str, int]] | None:
        """Return (step, index) of children of these jobs that run now.

        None if the engine knows only how many run. A child that has just begun may be missing.
        """

    def running_uses(self) -> Sequence[AttemptUse]:
        """Return what the attempts that run now have used. Empty if the engine does not know."""

    def step_uses(self, *, asks: bool = True) -> Mapping[str, SampledStep]:
        """Return step -> what its sampled attempts that have ended used.

        Steps that were not sampled are left out. ``asks`` False: no request is sent.
        """

    def commands(
        self, step: str | None = None, number: int | None = None, *, failed_only: bool = False
    ) -> Iterator[CommandDetail]:
        """Return the commands that have ended, by step and number, each once.

        ``number``: only the command of this number. ``failed_only``: only commands that failed and
        are not tried again.
        """

    def durations(self, step: str) -> Iterator[tuple[int, float]]:
        """Return (number, seconds) of the commands of a list that have succeeded, in any order.

        Nothing for a list whose records would have to be read one by one.
        """

    def overview(self) -> Overview:
        """Return the state of the whole run, with as few requests as possible."""

    def logs(
        self, step: str | None = None, index: int | None = None, *, failed_only: bool = False
    ) -> Iterator[LogChunk]:
        """Return all output so far, by step, child and attempt."""

    @property
    def log_reader(self) -> LogReader: ...

    def unfinished(self) -> Unfinished: ...

    def waits(self, jobs: Sequence[JobDetail]) -> Sequence[Wait] | None:
        """Return the children of these jobs that wait for a host.

        None if there are no hosts to wait for, and children wait only for each other.
        """

    def setup(self) -> RunSetup: ...

    def usage(self, *, asks: bool = True) -> Usage | None:
        """Return the hosts that the run has paid for until now, and its attempts on them.

        None for a run that costs nothing, such as one on this machine. ``asks`` False: no request
        is sent; what this machine has stored is returned, and None if that is nothing.
        """

    def record_usage(self, overview: Overview) -> None:
        """Store where children ran that have ended, before the service forgets it.

        Those who watch a run call it after each overview. It sends at most one request for each
        hundred children that ended, and every ten minutes a few for each hundred new hosts.
        """

    def store_prices(self, prices: Mapping[str, Any]) -> None:
        """Store the prices of the hosts with their usage, for other machines and later times."""

    @property
    def answer_source(self) -> str:
        """A sentence about the source of the state; empty if it is the engine itself."""

    @property
    def is_over_by_record(self) -> bool:
        """Whether a stored record has the end of the run, so that no request is needed."""

    @property
    def is_deletable(self) -> bool:
        """Whether the run's record may be deleted: the run is over, or was never submitted."""

    def close(self) -> None: ...


class Engine(Protocol):
    """Executes runs in one place: this machine, AWS, or memory."""

    name: str
    #: Whether runs are recorded in a `.batchyard` folder, for other processes.
    is_recorded: bool
    #: Whether the commands of dynamic steps belong to no child: children claim them at run time.
    claims_commands: bool
    #: A sentence about who keeps the cap of a run; empty if the engine cannot know what a run
    #: costs, or cannot hold it.
    cap_keeper: str

    def prepare(self, request: RunRequest) -> PreparedRun:
        """Fit a plan to the engine. Raises InputError for a run that could never succeed there."""

    def list_requests(self, prepared: PreparedRun) -> Sequence[ServiceRequest]:
        """Return the requests that would begin the run's jobs, in order, without sending them.

        Empty if the engine uses no service.
        """

    def prepare_retry(self, old: RunRecord, request: RetryRequest, say: Say) -> PreparedRun:
        """Prepare a run of all that has not succeeded in the old run, or of the requested part.

        Raises InputError if the old run is not over, has no such part, or nothing to repeat.
        """

    def prepare_resume(
        self, record: RunRecord, request: RetryRequest, *, detached: bool
    ) -> RunRecord:
        """Return the record with the requested changes.

        Raises InputError or RunLockedError if the run cannot be resumed.
        """

    def create(self, record: RunRecord, commands_done: Mapping[str, Sequence[int]]) -> None:
        """Write the engine's files of a new run into its folder."""

    def open(self, record: RunRecord) -> RunEngine: ...

    def settings_to_json(self, settings: Any) -> dict[str, Any]:
        """Return the engine's members of run.json."""

    def settings_from_json(self, document: Mapping[str, Any]) -> Any:
        """Return the settings from all members of run.json."""

    def download_record(self, home: Path, environment: str, run_id: str) -> str | None:
        """Return run.json of a run that another machine began.

        None if the engine has no runs of other machines. Raises RunNotFoundError.
        """

    def adopt(self, record: RunRecord) -> None:
        """Prepare a downloaded run for use on this machine, so that no job is submitted twice."""

    def list_runs(self, home: Path, environment: str) -> list[str] | None:
        """Return the ids of all runs in an environment; None if the engine has no environments."""
