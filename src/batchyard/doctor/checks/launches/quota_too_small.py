"""BY025: the EC2 quota does not allow a single instance that the job fits on."""

from __future__ import annotations

from batchyard.doctor.checks.base import check_environments
from batchyard.doctor.checks.launches.quotas import (
    find_exhausted_quota,
    increase_command,
    show_need,
)
from batchyard.doctor.facts import Environment, Facts
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY025", Severity.ERROR, 87, "the EC2 quota allows one instance that the job fits on")


@check_environments(KIND)
def check(environment: Environment, facts: Facts) -> Findings:
    exhausted = find_exhausted_quota(facts, environment, lambda quota: quota.vcpus)
    if exhausted is None:
        return
    smallest, quota = exhausted
    yield Finding(
        KIND,
        f"the EC2 quota does not allow one {smallest.type.name}, the smallest that would do",
        (f"quota {quota.code} {quota.name}: {quota.vcpus:g} vCPUs; {show_need(smallest)}",),
        (increase_command(quota, max(smallest.type.vcpus, environment.max_vcpus)),),
    )
