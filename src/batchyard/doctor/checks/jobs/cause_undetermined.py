"""BY053: AWS Batch calls the job blocked for an undetermined cause."""

from __future__ import annotations

from batchyard.doctor.checks.base import Timing, check_facts, runnable_job
from batchyard.doctor.facts import Facts
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict

KIND = Kind("BY053", Severity.WARNING, 30, "AWS Batch does not report an undetermined cause")


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    job = runnable_job(facts)
    if job is None:
        return None
    if not job.status_reason.startswith("UNDETERMINED"):
        return []
    return Finding(
        KIND,
        "AWS Batch reports the job as blocked and does not know the cause; "
        "other findings may name it",
        (job.status_reason,),
        (
            f"batchyard doctor job {job.job_id} --all"
            "   # what passed, and what could not be checked",
        ),
        f"job {job.job_id}",
    )
