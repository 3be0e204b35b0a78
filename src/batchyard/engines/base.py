"""The contract of an engine: submit, describe, stop, logs; lists of ids, never one call a job.

Values in, values out. What is written here holds for every engine, and one suite tests it on all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from batchyard.batch.jobs import JobState
from batchyard.plan import Plan


class RunState(StrEnum):
    #: not over; whether a process is at it is another question
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    #: ended because somebody asked for it
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class JobDetail:
    """A job, with its children counted."""

    id: str
    step: str
    #: in AWS Batch's terms: an array's parent is PENDING until all its children have ended
    state: JobState
    status_reason: str
    size: int
    #: number of children in each state, in JobState's order
    counts: tuple[int, ...]
    #: attempts that have ended, of all children
    attempts: int
    created_ms: int
    #: when the first child started; None where none has
    started_ms: int | None
    ended_ms: int | None

    def count(self, *states: JobState) -> int:
        return sum(self.counts[list(JobState).index(state)] for state in states)


@dataclass(frozen=True, slots=True)
class AttemptDetail:
    """One attempt that has ended. Attempt 0: the child failed without ever starting."""

    job_id: str
    step: str
    #: the child's number in its step
    index: int
    attempt: int
    #: None where another attempt followed
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

    @property
    def duration_s(self) -> float:
        return 0.0 if self.started_ms is None else (self.ended_ms - self.started_ms) / 1000


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Bytes of one attempt's output, stdout and stderr merged, exactly as they were written."""

    step: str
    index: int
    attempt: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Overview:
    """A whole run at one moment."""

    state: RunState
    jobs: tuple[JobDetail, ...]
    started_ms: int | None
    ended_ms: int | None
    #: not over, and nobody is at it: it waits for a `resume`
    is_interrupted: bool


class RunWatcher(Protocol):
    """An observer of a run that this process executes, such as a progress display."""

    def on_tick(self, changed: Sequence[JobDetail]) -> None:
        """Called about ten times a second with the jobs that changed; first with all jobs."""

    def on_failure(self, attempt: AttemptDetail) -> None:
        """Called once for each attempt that failed."""


class Engine(Protocol):
    name: str

    def submit(self, plan: Plan) -> list[str]:
        """Records the plan's jobs, in order, and returns their ids. Submitting what is there already adds nothing
        and returns the ids it has."""

    def describe(self, job_ids: Sequence[str]) -> list[JobDetail]:
        """The jobs, in the order asked for; an id that nobody knows is left out."""

    def attempts(
        self, job_ids: Sequence[str], *, failed_only: bool = False
    ) -> Iterator[AttemptDetail]:
        """The ended attempts, by job, child and attempt; ``failed_only``: the last one of each child that failed, if it
        ever started."""

    def stop(self, job_ids: Sequence[str], reason: str, grace_s: float = 30.0) -> None:
        """Asks for the end of the jobs: SIGTERM, ``grace_s`` seconds, SIGKILL. Returns at once; the jobs end as
        FAILED with ``reason``. What is over stays as it is, so that stopping twice is the same as once."""

    def logs(
        self, step: str | None = None, index: int | None = None, *, failed_only: bool = False
    ) -> Iterator[LogChunk]:
        """What has been written so far, by step, child and attempt."""


class LogReader(Protocol):
    def read(
        self, step: str | None = None, index: int | None = None, *, failed_only: bool = False
    ) -> Iterator[LogChunk]:
        """Each byte is given once: ``read`` again gives what is new."""

    def tail(self, detail: AttemptDetail, lines: int) -> list[str]:
        """The last lines of one attempt's output."""


class RunEngine(Engine, Protocol):
    """An engine opened for one run: what looking at a run takes beside the contract."""

    @property
    def job_ids(self) -> list[str]: ...

    @property
    def log_reader(self) -> LogReader: ...

    def overview(self) -> Overview:
        """The whole run, asked at once."""

    def unfinished(self) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        """(step -> children without success, by their numbers in the step; step -> commands that did succeed)."""

    def close(self) -> None: ...
