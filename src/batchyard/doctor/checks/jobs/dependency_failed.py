"""BY001: a job that this job depends on has failed."""

from __future__ import annotations

from batchyard.doctor.checks.base import Timing, check_facts, job_of, join_names
from batchyard.doctor.facts import Facts, Job
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict

KIND = Kind("BY001", Severity.ERROR, 95, "the job's dependencies can still succeed")
#: the status reason of a job whose dependency failed
DEPENDENCY_FAILED_REASON = "Dependent Job failed"
_MAX_COMMANDS = 3


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    job = job_of(facts)
    if job is None:
        return None
    is_reported = DEPENDENCY_FAILED_REASON in job.status_reason
    if not job.depends_on and not is_reported:
        return None
    failed_ids = [d.job_id for d in job.depends_on if d.status == "FAILED"]
    if not failed_ids and not is_reported:
        return []
    return _finding(job, failed_ids)


def _finding(job: Job, failed_ids: list[str]) -> Finding:
    """``failed_ids`` is empty where only the status reason tells of the failure."""
    names = join_names(failed_ids) or "one of them"
    count = len(failed_ids) or "at least 1"
    return Finding(
        KIND,
        "a job that it depends on failed, "
        f"so it {'failed' if job.status == 'FAILED' else 'will fail'} too",
        (f"{count} of {len(job.depends_on)} dependencies failed: {names}",),
        tuple(f"batchyard doctor job {job_id}" for job_id in failed_ids[:_MAX_COMMANDS])
        or (f"aws batch describe-jobs --jobs {job.job_id} --query 'jobs[].dependsOn'",),
        f"job {job.job_id}",
    )
