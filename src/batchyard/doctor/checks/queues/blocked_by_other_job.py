"""BY011: another job is first in the queue and does not start."""

from __future__ import annotations

from batchyard.doctor.checks.base import Timing, check_facts, runnable_job
from batchyard.doctor.facts import Facts, FrontJob, require
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.units import format_duration

KIND = Kind("BY011", Severity.ERROR, 60, "no other job blocks the front of the queue")
#: how AWS Batch begins the reason of a job that can never start
_MISCONFIGURED = "MISCONFIGURATION"


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    """Report a first job that AWS Batch calls blocked, or that is first for longer than dwell_s."""
    job = runnable_job(facts)
    if job is None and (facts.job is not None or facts.subject.kind != "queue"):
        return None
    front_jobs = require(facts.front)
    if not front_jobs or (job and _parent_id(front_jobs[0].job_id) == _parent_id(job.job_id)):
        return []
    first = front_jobs[0]
    # AWS Batch has decided: no time makes such a job start.
    is_misconfigured = first.status_reason.startswith(_MISCONFIGURED)
    if job is None:
        place = f"queue {facts.subject.name}"
        return _finding(place, first, _age_s(facts, first)) if is_misconfigured else []
    if timing.is_early and not is_misconfigured:
        return None
    age_s = _age_s(facts, first)
    if not first.status_reason and age_s < timing.dwell_s:
        return []
    return _finding(f"job {job.job_id}", first, age_s)


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
