"""What a job waits for besides a host: its dependencies, the jobs before it, its start. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from batchyard.doctor.checks.common import Found, Setting, job_of, named, waiting_job
from batchyard.doctor.checks.kinds import (
    BLOCKED_BY_AWS,
    BLOCKED_CAUSE_UNDETERMINED,
    DEPENDENCY_FAILED,
    QUEUE_BLOCKED_BY_OTHER_JOB,
    STARTING_FOR_LONG,
)
from batchyard.doctor.facts import Facts, Job, known
from batchyard.doctor.finding import Finding
from batchyard.units import show_duration

DEPENDENT_FAILED = "Dependent Job failed"
#: how AWS's reasons for blocked jobs begin
_BLOCKED = ("MISCONFIGURATION:", "CAPACITY:", "ACTION_REQUIRED")
_INVALID = "ACTION_REQUIRED"
#: those that other checks have words for
_EXPLAINED = (
    "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY",
    "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE",
    "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT",
    "MISCONFIGURATION:EC2_INSTANCE_CONFIGURATION_UNSUPPORTED",
    "MISCONFIGURATION:SERVICE_ROLE_PERMISSIONS",
)
_AWS_SAYS = "AWS calls the job blocked, and says why in words of its own"


def dependencies(facts: Facts, setting: Setting) -> Found:
    job = job_of(facts)
    if job is None or (not job.depends_on and DEPENDENT_FAILED not in job.status_reason):
        return None
    failed = [d.job_id for d in job.depends_on if d.status == "FAILED"]
    if not failed and DEPENDENT_FAILED not in job.status_reason:
        return []
    which = named(failed) or "one of them"
    return [
        Finding(
            DEPENDENCY_FAILED,
            f"a job that it depends on failed, so it {'failed' if job.status == 'FAILED' else 'will fail'} too",
            (
                f"{len(failed) or 'at least 1'} of {len(job.depends_on)} dependencies failed: {which}",
            ),
            tuple(f"batchyard doctor job {job_id}" for job_id in failed[:3])
            or (f"aws batch describe-jobs --jobs {job.job_id} --query 'jobs[].dependsOn'",),
            f"job {job.job_id}",
        )
    ]


def front(facts: Facts, setting: Setting) -> Found:
    """Another job at the front that AWS calls blocked, or that has been there longer than a fleet needs."""
    job = waiting_job(facts)
    if job is None or job.status != "RUNNABLE" or setting.is_early:
        return None
    jobs = known(facts.front)
    ours = job.job_id.partition(":")[0]
    others = [f for f in jobs if f.job_id.partition(":")[0] != ours]
    if not jobs or jobs[0].job_id.partition(":")[0] == ours or not others:
        return []
    head = others[0]
    stood_s = (facts.taken_ms - head.since_ms) / 1000 if head.since_ms is not None else 0
    if not head.status_reason and stood_s < setting.dwell_s:
        return []
    return [
        Finding(
            QUEUE_BLOCKED_BY_OTHER_JOB,
            "another job stands at the front of the queue and does not start",
            (
                f"{head.job_id} has been first for {show_duration(stood_s)}",
                *([f"AWS says of it: {head.status_reason}"] if head.status_reason else []),
            ),
            (
                f"batchyard doctor job {head.job_id}",
                f"aws batch cancel-job --job-id {head.job_id} --reason 'blocks the queue'   # if it can never start",
            ),
            f"job {job.job_id}",
        )
    ]


def undetermined(facts: Facts, setting: Setting) -> Found:
    job = waiting_job(facts)
    if job is None or job.status != "RUNNABLE":
        return None
    if not job.status_reason.startswith("UNDETERMINED"):
        return []
    return [
        Finding(
            BLOCKED_CAUSE_UNDETERMINED,
            "AWS calls the job blocked and does not know why; the other findings, if any, are the reason",
            (job.status_reason,),
            (
                f"batchyard doctor job {job.job_id} --all   # what was found right, and what could not be seen",
            ),
            f"job {job.job_id}",
        )
    ]


def blocked(facts: Facts, setting: Setting) -> Found:
    """What AWS says of a blocked job, where no other check has words for it."""
    job = waiting_job(facts)
    if job is None or job.status != "RUNNABLE":
        return None
    if not job.status_reason.startswith(_BLOCKED) or job.status_reason.startswith(_EXPLAINED):
        return []
    these = facts.environments if isinstance(facts.environments, tuple) else ()
    if job.status_reason.startswith(_INVALID) and any(
        e.status == "INVALID" or e.state == "DISABLED" for e in these
    ):
        return []  # what is wrong with the environment is a finding of its own
    return [_blocked(facts, job)]


def unsaid(facts: Facts, findings: Iterable[Finding]) -> Finding | None:
    """The same of a reason that another check has words for, and could not look, or does not apply here."""
    job = facts.job
    if (
        not isinstance(job, Job)
        or job.status != "RUNNABLE"
        or not job.status_reason.startswith(_EXPLAINED)
    ):
        return None
    is_said = any(job.status_reason in line for finding in findings for line in finding.evidence)
    return None if is_said else _blocked(facts, job)


def _blocked(facts: Facts, job: Job) -> Finding:
    these = facts.environments if isinstance(facts.environments, tuple) else ()
    is_invalid = job.status_reason.startswith(_INVALID)
    cause = (
        "AWS calls the job blocked: a compute environment of its queue is invalid"
        if is_invalid
        else _AWS_SAYS
    )
    names = " ".join(e.name for e in these) or "NAME"
    query = "--query 'computeEnvironments[].[computeEnvironmentName,status,statusReason]'"
    return Finding(
        BLOCKED_BY_AWS,
        cause,
        (job.status_reason,),
        (f"aws batch describe-compute-environments --compute-environments {names} {query}",),
        f"job {job.job_id}",
    )


def starting(facts: Facts, setting: Setting) -> Found:
    job = job_of(facts)
    if job is None or job.status != "STARTING" or job.since_ms is None:
        return None
    waited_s = (facts.taken_ms - job.since_ms) / 1000
    if waited_s < setting.dwell_s:
        return []
    return [_starts_slowly(job, waited_s)]


def _starts_slowly(job: Job, waited_s: float) -> Finding:
    return Finding(
        STARTING_FOR_LONG,
        "the job has a host, but its container does not start: a large or slow image pull, a full disk, or secrets",
        (f"STARTING for {show_duration(waited_s)}", f"image {job.image or 'not known'}"),
        (
            f"aws batch describe-jobs --jobs {job.job_id} --query 'jobs[].container.[containerInstanceArn,taskArn]'",
            "batchyard doctor host   # on that instance: disk, Docker, agent",
        ),
        f"job {job.job_id}",
    )
