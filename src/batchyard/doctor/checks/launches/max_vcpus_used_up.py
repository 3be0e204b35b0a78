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
    job = runnable_job(facts)
    is_of_place = facts.job is None and facts.subject.kind in ("queue", "env")
    if (job is None or timing.is_early) and not is_of_place:
        return None
    environments = ec2_environments(facts)
    if not environments or (is_of_place and facts.front == ()):
        return None  # nothing waits in the queue: to be used fully is no fault
    if not all(e.desired_vcpus >= e.max_vcpus > 0 for e in environments):
        return []
    return [
        Finding(
            KIND,
            f"{environment.name} is as large as it may get: "
            f"{'the job waits' if job else 'a new job waits'} until another ends",
            (f"desiredvCpus {environment.desired_vcpus} of maxvCpus {environment.max_vcpus}",),
            (update_resources_command(environment, f"maxvCpus={environment.max_vcpus * 2}"),),
            place_of(environment),
        )
        for environment in environments
    ]
