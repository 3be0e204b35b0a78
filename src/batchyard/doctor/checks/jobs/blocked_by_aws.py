"""BY059: AWS Batch calls the job blocked for a reason that no other check explains."""

from __future__ import annotations

from collections.abc import Iterable

from batchyard.doctor.checks.base import Timing, check_facts, listed_environments, runnable_job
from batchyard.doctor.facts import Facts, Job
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict

KIND = Kind(
    "BY059", Severity.ERROR, 98, "AWS Batch does not report the job as blocked for another reason"
)
#: how the status reasons of blocked jobs begin
_BLOCKED_REASONS = ("MISCONFIGURATION:", "CAPACITY:", "ACTION_REQUIRED")
#: how the reason begins where a compute environment is invalid or disabled
_INVALID_ENVIRONMENT = "ACTION_REQUIRED"
#: how the reasons begin that other checks explain
_EXPLAINED_REASONS = (
    "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY",
    "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE",
    "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT",
    "MISCONFIGURATION:EC2_INSTANCE_CONFIGURATION_UNSUPPORTED",
    "MISCONFIGURATION:SERVICE_ROLE_PERMISSIONS",
)


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    job = runnable_job(facts)
    if job is None:
        return None
    reason = job.status_reason
    if not reason.startswith(_BLOCKED_REASONS) or reason.startswith(_EXPLAINED_REASONS):
        return []
    if reason.startswith(_INVALID_ENVIRONMENT) and _has_unusable_environment(facts):
        return []  # BY004 or BY005 reports the environment
    return _finding(facts, job)


def find_unexplained_reason(facts: Facts, findings: Iterable[Finding]) -> Finding | None:
    """Return a finding for a status reason that the check responsible for it did not report.

    That check may lack facts, or may not apply to the job.
    """
    job = facts.job
    if not isinstance(job, Job) or job.status != "RUNNABLE":
        return None
    if not job.status_reason.startswith(_EXPLAINED_REASONS):
        return None
    is_explained = any(
        job.status_reason in line for finding in findings for line in finding.evidence
    )
    return None if is_explained else _finding(facts, job)


def _has_unusable_environment(facts: Facts) -> bool:
    return any(e.status == "INVALID" or e.state == "DISABLED" for e in listed_environments(facts))


def _finding(facts: Facts, job: Job) -> Finding:
    if job.status_reason.startswith(_INVALID_ENVIRONMENT):
        cause = (
            "AWS Batch reports the job as blocked: a compute environment of its queue is invalid"
        )
    else:
        cause = "AWS Batch reports the job as blocked"
    names = " ".join(environment.name for environment in listed_environments(facts))
    selection = f"--compute-environments {names} " if names else ""
    query = "--query 'computeEnvironments[].[computeEnvironmentName,status,statusReason]'"
    return Finding(
        KIND,
        cause,
        (job.status_reason,),
        (f"aws batch describe-compute-environments {selection}{query}",),
        f"job {job.job_id}",
    )
