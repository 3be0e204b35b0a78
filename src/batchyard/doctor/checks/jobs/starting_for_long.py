"""BY071: the job has a host, but its container does not start."""

from __future__ import annotations

from batchyard.doctor.checks.base import Timing, check_facts, job_of
from batchyard.doctor.facts import Facts
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict
from batchyard.units import format_duration

KIND = Kind("BY071", Severity.WARNING, 60, "a placed job starts in time")


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    job = job_of(facts)
    if job is None or job.status != "STARTING" or job.since_ms is None:
        return None
    age_s = (facts.taken_ms - job.since_ms) / 1000
    if age_s < timing.dwell_s:
        return []
    return Finding(
        KIND,
        "the job has a host, but its container does not start: "
        "a large or slow image pull, a full disk, or secrets",
        (f"STARTING for {format_duration(age_s)}", f"image {job.image or 'not known'}"),
        (
            f"aws batch describe-jobs --jobs {job.job_id} "
            "--query 'jobs[].container.[containerInstanceArn,taskArn]'",
            "batchyard doctor host   # on that instance: disk, Docker, agent",
        ),
        f"job {job.job_id}",
    )
