"""BY011: another job is first in the queue and does not start."""

from __future__ import annotations

from batchyard.doctor.checks.base import Timing, check_facts, runnable_job
from batchyard.doctor.facts import Facts, FrontJob, Job, require
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.units import format_duration

KIND = Kind("BY011", Severity.ERROR, 60, "no other job blocks the front of the queue")
#: how AWS Batch begins the reason of a job that can never start
_MISCONFIGURED = "MISCONFIGURATION"


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    """Report a first job that AWS Batch calls blocked, or that is first for longer than dwell_s."""
    job = runnable_job(facts)
    if job is not None:
        return _check_job(job, facts, timing)
    if facts.job is not None or facts.subject.kind != "queue":
        return None
    front_jobs = require(facts.front)
    if not front_jobs or not _is_misconfigured(front_jobs[0]):
        return []
    return _finding(f"queue {facts.subject.name}", front_jobs[0], _age_s(facts, front_jobs[0]))


def _check_job(job: Job, facts: Facts, timing: Timing) -> Verdict:
    """Report the first job of the queue in which this job waits."""
    front_jobs = require(facts.front)
    if not front_jobs or _parent_id(front_jobs[0].job_id) == _parent_id(job.job_id):
        return []
    first = front_jobs[0]
    if timing.is_early and not _is_misconfigured(first):
        return None
    age_s = _age_s(facts, first)
    if not first.status_reason and age_s < timing.dwell_s:
        return []
    return _finding(f"job {job.job_id}", first, age_s)


def _is_misconfigured(first: FrontJob) -> bool:
    """Return whether AWS Batch has decided that the job cannot start, however long it waits."""
    return first.status_reason.startswith(_MISCONFIGURED)


def _age_s(facts: Facts, first: FrontJob) -> float:
    return (facts.taken_ms - first.since_ms) / 1000 if first.since_ms is not None else 0


def _parent_id(job_id: str) -> str:
    """Return the id of the array that a child belongs to; the id itself for other jobs."""
    return job_id.partition(":")[0]


def _finding(place: str, first: FrontJob, age_s: float) -> Finding:
    return Finding(
        KIND,
        "another job is first in the queue and does not start",
        (
            f"{first.job_id} has been first for {format_duration(age_s)}",
            *([f"AWS Batch says: {first.status_reason}"] if first.status_reason else []),
        ),
        (
            f"batchyard doctor job {first.job_id}",
            f"aws batch cancel-job --job-id {first.job_id} --reason 'blocks the queue'"
            "   # if it can never start",
        ),
        place,
    )
