"""BY032: instances of a public subnet get no public address."""

from __future__ import annotations

from batchyard.doctor.checks.network.subnets import check_subnets
from batchyard.doctor.facts import Facts, Subnet, require
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY032", Severity.ERROR, 84, "instances in public subnets get a public address")


@check_subnets(KIND)
def check(subnet: Subnet, facts: Facts) -> Findings:
    route = require(subnet.default_route)
    if not route.startswith("igw-") or subnet.gives_public_address:
        return
    yield Finding(
        KIND,
        f"{subnet.id} routes to an internet gateway, but its instances get no public address",
        (f"0.0.0.0/0 goes to {route}; MapPublicIpOnLaunch is false",),
        (
            f"aws ec2 modify-subnet-attribute --subnet-id {subnet.id} --map-public-ip-on-launch",
            "or use subnets behind a NAT gateway",
        ),
    )
