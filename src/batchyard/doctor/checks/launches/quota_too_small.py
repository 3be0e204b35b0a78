"""BY025: the EC2 quota does not allow a single instance that the job fits on."""

from __future__ import annotations

from batchyard.doctor.checks.base import (
    Check,
    Timing,
    Verdict,
    check_each,
    ec2_environments,
    place_of,
)
from batchyard.doctor.checks.launches.quotas import (
    find_exhausted_quota,
    increase_command,
    show_need,
)
from batchyard.doctor.facts import Environment, Facts
from batchyard.doctor.finding import Finding, Kind, Severity

KIND = Kind("BY025", Severity.ERROR, 87, "the EC2 quota allows one instance that the job fits on")


def check(facts: Facts, timing: Timing) -> Verdict:
    return check_each(ec2_environments(facts), lambda environment: _examine(facts, environment))


def _examine(facts: Facts, environment: Environment) -> list[Finding]:
    exhausted = find_exhausted_quota(facts, environment, lambda quota: quota.vcpus)
    if exhausted is None:
        return []
    smallest, quota = exhausted
    return [
        Finding(
            KIND,
            f"the EC2 quota does not allow one {smallest.type.name}, the smallest that would do",
            (f"quota {quota.code} {quota.name}: {quota.vcpus:g} vCPUs; {show_need(smallest)}",),
            (increase_command(quota, max(smallest.type.vcpus, environment.max_vcpus)),),
            place_of(environment),
        )
    ]


CHECK = Check(check, (KIND,))
