"""BY057: a Spot environment has a single instance type. Also used for templates."""

from __future__ import annotations

from batchyard.doctor.checks.base import InstanceTypes, check_types, update_resources_command
from batchyard.doctor.facts import Environment
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY057", Severity.WARNING, 40, "Spot instances have alternatives")


def examine(environment: Environment, types: InstanceTypes) -> Findings:
    if not environment.is_spot or environment.is_fargate or len(types) != 1:
        return
    yield Finding(
        KIND,
        f"{environment.name} buys Spot instances of a single type: one shortage stops it",
        (f"1 instance type: {types[0].name}",),
        (
            update_resources_command(
                environment, "instanceTypes=TYPE,TYPE,TYPE   # AWS advises ten or more"
            ),
        ),
    )


check = check_types(KIND)(examine)
