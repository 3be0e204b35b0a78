"""The contract between the loop and its runners, which start processes or containers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import field
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from batchyard.batch.jobs import Outcome, Resources
from batchyard.pipeline import Mount
from batchyard.quick_dataclasses import NamedTuple, dataclass
from batchyard.shard import Turn

if TYPE_CHECKING:
    from batchyard.sampling.samples import SampledUse

#: Number of the command in the step's list; only for a step with a list.
COMMAND_VARIABLE = b"BATCHYARD_COMMAND"
#: Attempts that start one after the other without a turn between them, at most.
MAX_SERIES_LENGTH = 16


class CommandEnd(NamedTuple):
    """The end of one command, of a child with several."""

    number: int
    exit_code: int
    started_ms: int
    ended_ms: int
    user_s: float
    system_s: float
    max_rss_kib: int
    #: Position of the command's output in the output of the attempt.
    log_offset: int
    log_length: int
    #: None if the command ended before the first sample.
    use: SampledUse | None = None


@dataclass(slots=True, eq=False)
class Task:
    """One attempt to be executed: its commands, environment and resources."""

    job_number: int
    job_id: str
    step: str
    #: Number of the child in its job.
    child: int
    #: Number of the child in its step, whose array may be several jobs.
    index_in_step: int
    attempt: int
    turn: Turn
    #: Returns the command of a number: a text for the shell, or a program with its arguments.
    command: Callable[[int], str | tuple[str, ...]]
    #: The whole environment of a process on this machine.
    environ: MutableMapping[bytes, bytes]
    #: Names of the variables that the engine sets. A container gets only these.
    engine_variables: tuple[bytes, ...]
    resources: Resources
    gpus: tuple[int, ...] = ()
    image: str | None = None
    shm_mib: int | None = None
    #: Mounts, limits ("soft:hard") and user of the container; a process has none of them.
    mounts: tuple[Mount, ...] = ()
    ulimits: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    #: Unique to this attempt. It is in the environment of all its processes, to recognise orphans.
    mark: bytes = b""
    #: Whether the commands of the attempt are recorded one by one.
    has_several_commands: bool = False
    #: Commands that have ended and are not recorded yet; only if ``has_several_commands``.
    unrecorded: list[CommandEnd] = field(default_factory=list)
    #: Number of commands of this attempt that have failed; only if ``has_several_commands``.
    failed_count: int = 0
    #: The lowest number that no other running attempt of the job has.
    slot: int = 0
    #: None until the attempt runs.
    started_ms: int | None = None
    #: Flags of `docker create` for a container of the emulator. None for a container that stands
    #: for a process of this machine and gets the workspace and the caller's user.
    container_flags: tuple[str, ...] | None = None
    #: Name of the compute environment, where there are several.
    compute_environment: str = ""
    #: Id of the emulated instance; empty where there is none.
    host_id: str = ""
    #: Outcome of an attempt that is not executed at all; None for one that is.
    refusal: Outcome | None = None

    @property
    def engine_environ(self) -> dict[str, str]:
        """The variables that the engine sets, with their values."""
        return {
            os.fsdecode(name): os.fsdecode(self.environ[name])
            for name in self.engine_variables
            if name in self.environ
        }


class Ended(NamedTuple):
    """Event: an attempt is over, and none of its processes runs any more."""

    task: Task
    outcome: Outcome
    #: None where the attempt never ran.
    started_ms: int | None
    ended_ms: int
    user_s: float
    system_s: float
    max_rss_kib: int
    #: Position of the output in short.log; None where the output has its own file.
    log_offset: int | None
    log_length: int | None
    #: None if the attempt ended before the first sample.
    use: SampledUse | None = None


class Started(NamedTuple):
    """Event: the process or container of an attempt runs.

    A short follower has none: it has ended when it is reported.
    """

    task: Task
    at_ms: int


class Withdrawn(NamedTuple):
    """Event: a follower was not started, and will not be."""

    task: Task


Event = Started | Ended | Withdrawn


class Runner(Protocol):
    """Starts attempts and reports their events. Callers hold ``lock``, but for wake and close."""

    name: str
    lock: Lock

    def listen(self, turn: Callable[[], None]) -> None:
        """Call ``turn`` from now on when there may be events, in any thread with the lock held."""

    def start(self, task: Task, *followers: Task) -> None:
        """Begin the attempt. An attempt that cannot start is reported as ``Ended``.

        ``followers`` start one after the other, each when the one before it has succeeded after a
        short time. Else they are reported as ``Withdrawn``, the last one first. Only for a runner
        of processes, and for attempts of a single command.
        """

    def wait(self, timeout_s: float) -> None:
        """Sleep, without the lock, until there are events, a signal arrives or time is up."""

    def take_events(self) -> list[Event]:
        """Return the events since the last call."""

    def wake(self) -> None:
        """End a ``wait``. May be called from any thread."""

    def signal(self, tasks: Iterable[Task], signum: int) -> None:
        """Send a signal to all processes of the tasks, and start no further command of them.

        After SIGKILL no process is left. Tasks that are over are ignored.
        """

    def tick(self) -> None:
        """Store output of long-running attempts and end orphans. Called ten times a second."""

    def end_leftovers(self, token: str) -> int:
        """End processes that an earlier engine of this run left running; return their number."""

    def close(self) -> None:
        """Kill everything that still runs, and release all resources."""


class Prober(Protocol):
    """Starts a command beside a running attempt. Callers hold the lock of the runner."""

    def __call__(
        self, task: Task, command: tuple[str, ...], on_end: Callable[[int], None]
    ) -> Callable[[], None]:
        """Start the command where the attempt runs, and return a function that kills it.

        ``on_end`` gets the exit code, with the lock held. Raises OSError or ValueError if the
        command cannot be started.
        """
