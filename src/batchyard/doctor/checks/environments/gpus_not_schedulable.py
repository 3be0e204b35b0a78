"""BY019: the environment has GPUs that ECS cannot schedule. Also used for templates."""

from __future__ import annotations

from batchyard import ec2_types
from batchyard.doctor.checks.base import (
    InstanceTypes,
    check_types,
    join_names,
    update_resources_command,
)
from batchyard.doctor.facts import Environment
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY019", Severity.ERROR, 80, "ECS can schedule the GPUs")


def examine(environment: Environment, types: InstanceTypes) -> Findings:
    names = [t.name for t in types if ec2_types.family_of(t.name) in ec2_types.UNSCHEDULABLE]
    if not names:
        return
    yield Finding(
        KIND,
        f"{environment.name} has GPUs that ECS cannot give to a job: AMD, or slices of one",
        (f"{join_names(names)}: 0 GPUs to schedule",),
        (update_resources_command(environment, "instanceTypes=g4dn.xlarge,g5.xlarge,g6.xlarge"),),
    )


check = check_types(KIND)(examine)
