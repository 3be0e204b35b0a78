"""Answers of the scheduler: what to start, what to stop, what has ended. Values only."""

from __future__ import annotations

from batchyard.batch.jobs import JobState
from batchyard.quick_dataclasses import NamedTuple


class Start(NamedTuple):
    """Start this attempt now. Its capacity is already taken."""

    job_id: str
    child: int
    attempt: int
    gpus: tuple[int, ...]
    environment: str
    #: id of the instance; empty in an environment without instances
    host_id: str = ""
    #: whether it starts in the room of the Start before it, when that attempt has ended
    is_follower: bool = False


class Stop(NamedTuple):
    """Stop this running child: SIGTERM, then SIGKILL. ``attempt_ended`` is still to be called."""

    job_id: str
    child: int


class Settled(NamedTuple):
    """A child has reached its final state. Attempt 0 means that it never started."""

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
    """All children of the job that were not placed yet have failed for this reason.

    One record stands for all of them, as there can be a million.
    """

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
