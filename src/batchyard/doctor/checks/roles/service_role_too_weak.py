"""BY052: AWS Batch reports that the service role lacks a permission."""

from __future__ import annotations

from batchyard.doctor.checks.base import Timing, check_facts, listed_environments, runnable_job
from batchyard.doctor.facts import Facts
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict

KIND = Kind("BY052", Severity.ERROR, 84, "AWS Batch does not report missing permissions")
_STATUS_REASON = "MISCONFIGURATION:SERVICE_ROLE_PERMISSIONS"


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    job = runnable_job(facts)
    if job is None:
        return None
    if not job.status_reason.startswith(_STATUS_REASON):
        return []
    names = [environment.name for environment in listed_environments(facts)] or ["NAME"]
    find_role = (
        f"aws batch describe-compute-environments --compute-environments {names[0]} "
        "--query 'computeEnvironments[0].serviceRole' --output text | sed 's,.*/,,'"
    )
    return Finding(
        KIND,
        "AWS says that the service role lacks a permission",
        (job.status_reason,),
        (
            "use AWSServiceRoleForBatch: make the environment without a service role, or",
            f'aws iam attach-role-policy --role-name "$({find_role})" --policy-arn '
            "arn:aws:iam::aws:policy/service-role/AWSBatchServiceRole",
        ),
        f"job {job.job_id}",
        likelihood=99,
    )
