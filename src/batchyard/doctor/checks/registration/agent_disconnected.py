"""BY037: the ECS agent of a host is not connected."""

from __future__ import annotations

from batchyard.doctor.checks.base import MAX_LISTED, check_environments, host_environments
from batchyard.doctor.facts import Environment, Facts, require
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY037", Severity.WARNING, 70, "the agents are connected")


@check_environments(KIND, host_environments)
def check(environment: Environment, facts: Facts) -> Findings:
    hosts = require(environment.hosts)
    lost = [h for h in hosts if not h.is_connected]
    if not lost:
        return
    yield Finding(
        KIND,
        f"the ECS agent of {len(lost)} of {len(hosts)} hosts of {environment.name} "
        "is not connected",
        tuple(f"{h.instance_id} ({h.type}): agentConnected false" for h in lost[:MAX_LISTED]),
        ("batchyard doctor host   # on such an instance: is Docker alive, is the agent?",),
    )
