"""BY051: AWS Batch calls the instance configuration unsupported."""

from __future__ import annotations

from batchyard.doctor.checks.base import (
    Timing,
    check_facts,
    environments_of,
    join_names,
    runnable_job,
)
from batchyard.doctor.facts import Facts
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict

KIND = Kind("BY051", Severity.ERROR, 84, "AWS Batch does not report an unsupported configuration")
_STATUS_REASON = "MISCONFIGURATION:EC2_INSTANCE_CONFIGURATION_UNSUPPORTED"


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    job = runnable_job(facts)
    if job is None:
        return None
    if not job.status_reason.startswith(_STATUS_REASON):
        return []
    names = [name for e in environments_of(facts) for name in e.instance_types]
    # A family stands for all its sizes.
    patterns = dict.fromkeys(name if "." in name else f"{name}.*" for name in names)
    return Finding(
        KIND,
        "AWS cannot launch these instance types in these zones, or not with this launch template",
        (job.status_reason, f"instance types: {join_names(names) or 'none named'}"),
        (
            "aws ec2 describe-instance-type-offerings --location-type availability-zone "
            f"--filters 'Name=instance-type,Values={','.join(patterns) or '*'}'",
        ),
        f"job {job.job_id}",
        likelihood=99,
    )
