"""What the scheduler answers: what to start, what to end, what has come to its end. Values only."""

from __future__ import annotations

from typing import NamedTuple

from batchyard.batch.jobs import JobState


class Start(NamedTuple):
    """Start this attempt now; the capacity is already taken."""

    job_id: str
    child: int
    attempt: int
    gpus: tuple[int, ...]
    environment: str


class Stop(NamedTuple):
    """End this running child: SIGTERM, then SIGKILL. Its ``ended`` is still to come."""

    job_id: str
    child: int


class Settled(NamedTuple):
    """A child has reached its final state. Attempt 0: it never started."""

    job_id: str
    child: int
    attempt: int
    state: JobState
    status_reason: str


class Requeued(NamedTuple):
    """An attempt failed and another will follow."""

    job_id: str
    child: int
    attempt: int


class RestFailed(NamedTuple):
    """Every child of the job that had not been placed has failed for this reason: one record for a million."""

    job_id: str
    status_reason: str


class JobSettled(NamedTuple):
    """All children of the job have ended."""

    job_id: str
    state: JobState
    status_reason: str


Change = Stop | Settled | Requeued | RestFailed | JobSettled


class JobSummary(NamedTuple):
    job_id: str
    state: JobState
    #: number of children in each state, in JobState's order
    counts: tuple[int, ...]
