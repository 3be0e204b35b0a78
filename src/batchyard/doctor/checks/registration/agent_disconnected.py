"""BY037: the ECS agent of a host is not connected."""

from __future__ import annotations

from batchyard.doctor.checks.base import (
    MAX_LISTED,
    Check,
    Timing,
    Verdict,
    check_each,
    host_environments,
    place_of,
)
from batchyard.doctor.facts import Environment, Facts, require
from batchyard.doctor.finding import Finding, Kind, Severity

KIND = Kind("BY037", Severity.WARNING, 70, "the agents are connected")


def check(facts: Facts, timing: Timing) -> Verdict:
    return check_each(host_environments(facts), _examine)


def _examine(environment: Environment) -> list[Finding]:
    hosts = require(environment.hosts)
    lost = [h for h in hosts if not h.is_connected]
    if not lost:
        return []
    return [
        Finding(
            KIND,
            f"the ECS agent of {len(lost)} of {len(hosts)} hosts of {environment.name} "
            "is not connected",
            tuple(f"{h.instance_id} ({h.type}): agentConnected false" for h in lost[:MAX_LISTED]),
            ("batchyard doctor host   # on such an instance: is Docker alive, is the agent?",),
            place_of(environment),
        )
    ]


CHECK = Check(check, (KIND,))
