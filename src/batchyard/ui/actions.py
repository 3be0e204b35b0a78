"""Stop, retry and resume a run from the page: the question before, and the action after it."""

from __future__ import annotations

from collections.abc import Callable

from batchyard import operations
from batchyard.batch.jobs import JobState
from batchyard.engines.base import DEFAULT_GRACE_S, RunRecord
from batchyard.quick_dataclasses import dataclass
from batchyard.units import pluralize


@dataclass(frozen=True, slots=True)
class Action:
    #: Returns what will happen, as sentences. Raises InputError if it cannot.
    ask: Callable[[RunRecord], str]
    #: Does it, and returns the id of the run to look at.
    act: Callable[[RunRecord], str]


def _ask_stop(record: RunRecord) -> str:
    engine = record.open()
    try:
        jobs = engine.overview().jobs
    finally:
        engine.close()
    running = sum(job.count(JobState.STARTING, JobState.RUNNING) for job in jobs)
    return (
        f"Stop run {record.run_id}? {pluralize(running, 'child', 'children')} of it run now: they "
        f"get SIGTERM, and SIGKILL after {DEFAULT_GRACE_S:.0f} seconds. No other child starts. "
        "What has succeeded stays, and a retry runs the rest."
    )


def _stop(record: RunRecord) -> str:
    operations.stop(record, wait=False)
    return record.run_id


def _ask_retry(record: RunRecord) -> str:
    plan = operations.preview_retry(record).plan
    count = pluralize(sum(job.size for job in plan.jobs), "child", "children")
    steps = ", ".join(job.step for job in plan.jobs)
    return (
        f"Start a new run of the {count} of {record.run_id} that failed or never ran? Steps: "
        f"{steps}. Their commands are those of this run, even if the file has changed since."
    )


def _retry(record: RunRecord) -> str:
    retried = operations.begin_retry(record)
    operations.start(retried)
    return retried.run_id


def _ask_resume(record: RunRecord) -> str:
    operations.prepare_resume(record, detached=True)
    return (
        f"Resume run {record.run_id}? Processes that its dead process left behind are ended first. "
        "Children that succeeded do not run again."
    )


def _resume(record: RunRecord) -> str:
    operations.start(operations.prepare_resume(record, detached=True))
    return record.run_id


ACTIONS = {
    "stop": Action(_ask_stop, _stop),
    "retry": Action(_ask_retry, _retry),
    "resume": Action(_ask_resume, _resume),
}
