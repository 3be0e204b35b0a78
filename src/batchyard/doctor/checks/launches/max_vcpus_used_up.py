"""BY013: every environment runs as many vCPUs as maxvCpus allows."""

from __future__ import annotations

from batchyard.doctor.checks.base import (
    Timing,
    check_facts,
    ec2_environments,
    place_of,
    runnable_job,
    update_resources_command,
)
from batchyard.doctor.facts import Facts
from batchyard.doctor.finding import Finding, Kind, Severity, Verdict

KIND = Kind("BY013", Severity.WARNING, 50, "maxvCpus is not used up")


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    if runnable_job(facts) is None or timing.is_early:
        return None
    environments = ec2_environments(facts)
    if not environments:
        return None
    if not all(e.desired_vcpus >= e.max_vcpus > 0 for e in environments):
        return []
    return [
        Finding(
            KIND,
            f"{environment.name} is as large as it may get: the job waits until another ends",
            (f"desiredvCpus {environment.desired_vcpus} of maxvCpus {environment.max_vcpus}",),
            (update_resources_command(environment, f"maxvCpus={environment.max_vcpus * 2}"),),
            place_of(environment),
        )
        for environment in environments
    ]
