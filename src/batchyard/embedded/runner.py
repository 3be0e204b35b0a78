"""The seam between the loop and what really executes: processes or containers. Values, and the contract."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple, Protocol

from batchyard.batch.jobs import Outcome, Resources
from batchyard.shard import Turn


@dataclass(slots=True, eq=False)
class Task:
    """One attempt to be executed: its commands in turn, and all that they are told."""

    job_number: int
    job_id: str
    step: str
    #: the child's number in its job, and in its step
    child: int
    index_in_step: int
    attempt: int
    turn: Turn
    #: number -> the command: a text for the shell, or a program with its arguments
    command: Callable[[int], str | tuple[str, ...]]
    #: the whole environment of a process on this machine
    environ: dict[bytes, bytes]
    #: names in it of what the engine itself says: all that a container gets
    told: tuple[bytes, ...]
    resources: Resources
    gpus: tuple[int, ...] = ()
    image: str | None = None
    shm_mib: int | None = None
    #: unique to this attempt, and in its environment, so that whatever it leaves behind can be told
    mark: bytes = b""
    #: whether the attempt's commands are recorded one by one
    has_several: bool = False
    #: numbers of the commands that have succeeded and are not recorded yet
    unrecorded: list[int] = field(default_factory=list)
    #: None until it runs
    started_ms: int | None = None
    #: `docker create`'s flags for a container that is all of its own; None for one that is to stand for a process here
    container_flags: tuple[str, ...] | None = None
    #: the compute environment, where there are several
    place: str = ""
    #: what becomes of it instead of an execution
    refused: Outcome | None = None

    @property
    def own_environ(self) -> dict[str, str]:
        """What the engine itself says in the environment."""
        return {
            os.fsdecode(name): os.fsdecode(self.environ[name])
            for name in self.told
            if name in self.environ
        }


class Ended(NamedTuple):
    """An attempt is over, and nothing of it runs any more."""

    task: Task
    outcome: Outcome
    #: None where it never came to run
    started_ms: int | None
    ended_ms: int
    user_s: float
    system_s: float
    max_rss_kib: int
    #: where its output is in short.log; None where it has a file of its own
    log_offset: int | None
    log_length: int | None


class Started(NamedTuple):
    """An attempt's process or container runs now."""

    task: Task
    at_ms: int


class Runner(Protocol):
    """Whoever calls holds ``lock``, but for ``wake`` and ``close``."""

    name: str
    lock: Lock

    def listen(self, turn: Callable[[], None]) -> None:
        """From now on ``turn`` is called, by any thread and with the lock held, when there may be news."""

    def start(self, task: Task) -> None:
        """Begins the attempt. Never raises for what the task does wrong: that comes back as ``Ended``."""

    def wait(self, timeout_s: float) -> None:
        """Until something has happened, or a signal came; lets go of the lock while it sleeps."""

    def news(self) -> list[Started | Ended]:
        """What has happened since it was last asked."""

    def wake(self) -> None:
        """From any thread: ends a ``wait``."""

    def signal(self, tasks: Iterable[Task], signum: int) -> None:
        """Sends the signal to everything the tasks have running; SIGKILL leaves nothing of them. A task that is over
        is passed over. No further command of the tasks is started."""

    def tick(self) -> None:
        """Called ten times a second: passes on output of what runs long, ends what ended children left behind."""

    def end_leftovers(self, token: str) -> int:
        """Ends what an earlier engine of this run left running, waits until it is gone, and says how much it was."""

    def close(self) -> None:
        """Lets go of everything; whatever still runs is killed."""
