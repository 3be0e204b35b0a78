"""BY034: the network ACL of a subnet blocks HTTPS or its answers."""

from __future__ import annotations

from batchyard.doctor.checks.base import Check, Timing, Verdict, place_of
from batchyard.doctor.checks.network.subnets import check_subnets
from batchyard.doctor.facts import Environment, Facts, Subnet, require
from batchyard.doctor.finding import Finding, Kind, Severity

KIND = Kind("BY034", Severity.ERROR, 60, "the network ACLs allow outgoing HTTPS and its responses")


def check(facts: Facts, timing: Timing) -> Verdict:
    return check_subnets(facts, _examine)


def _examine(environment: Environment, subnet: Subnet) -> list[Finding]:
    rules = require(subnet.blocked_by)
    if not rules:
        return []
    return [
        Finding(
            KIND,
            f"the network ACL of {subnet.id} keeps its instances from AWS",
            rules,
            ("allow TCP 443 out and TCP 1024-65535 in",),
            place_of(environment),
        )
    ]


CHECK = Check(check, (KIND,))
