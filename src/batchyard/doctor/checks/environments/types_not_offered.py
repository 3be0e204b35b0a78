"""BY029: no instance type of the environment is offered in the zones of its subnets."""

from __future__ import annotations

from batchyard.doctor.checks.base import (
    check_environments,
    join_names,
    types_of,
    update_resources_command,
)
from batchyard.doctor.facts import Environment, Facts, require
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY029", Severity.ERROR, 80, "the instance types are offered in the subnets' zones")


@check_environments(KIND)
def check(environment: Environment, facts: Facts) -> Findings:
    """An environment passes when one of its types is offered in one of its zones."""
    offers = {(offering.type, offering.zone) for offering in require(facts.offerings)}
    zone_of = {subnet.id: subnet.zone for subnet in require(facts.subnets)}
    zones = sorted({zone_of[subnet] for subnet in environment.subnets if subnet in zone_of})
    types = [t.name for t in types_of(environment, facts)]
    offered_zones = sorted({zone for name, zone in offers if name in types})
    if not zones or not types or set(zones) & set(offered_zones):
        return
    yield Finding(
        KIND,
        f"none of the instance types of {environment.name} is offered in the zones of its subnets",
        (
            f"types {join_names(types)}; zones {join_names(zones)}",
            f"offered in {join_names(offered_zones) or 'no zone of this region'}",
        ),
        (
            update_resources_command(
                environment, "subnets=SUBNET   # in a zone where they are offered"
            ),
        ),
    )
