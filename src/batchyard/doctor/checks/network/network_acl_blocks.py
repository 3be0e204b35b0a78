"""BY034: the network ACL of a subnet blocks HTTPS or its answers."""

from __future__ import annotations

from batchyard.doctor.checks.network.subnets import check_subnets
from batchyard.doctor.facts import Facts, Subnet, require
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY034", Severity.ERROR, 60, "the network ACLs allow outgoing HTTPS and its responses")


@check_subnets(KIND)
def check(subnet: Subnet, facts: Facts) -> Findings:
    rules = require(subnet.blocked_by)
    if not rules:
        return
    yield Finding(
        KIND,
        f"the network ACL of {subnet.id} keeps its instances from AWS",
        rules,
        ("allow TCP 443 out and TCP 1024-65535 in",),
    )
