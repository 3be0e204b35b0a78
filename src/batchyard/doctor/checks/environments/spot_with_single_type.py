"""BY057: a Spot environment has a single instance type. Also used for templates."""

from __future__ import annotations

from batchyard import ec2_types
from batchyard.doctor.checks.base import InstanceTypes, check_types, update_resources_command
from batchyard.doctor.facts import Environment
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY057", Severity.WARNING, 40, "Spot instances have alternatives")
_TYPES_ADDED = 4


def examine(environment: Environment, types: InstanceTypes) -> Findings:
    if not environment.is_spot or environment.is_fargate or len(types) != 1:
        return
    yield Finding(
        KIND,
        f"{environment.name} buys Spot instances of a single type: one shortage stops it",
        (f"1 instance type: {types[0].name}",),
        (_add_similar_types(environment, types[0]),),
    )


def _add_similar_types(environment: Environment, single: ec2_types.InstanceType) -> str:
    """Return the command that adds types of the same architecture and with as many GPUs."""
    similar = [
        t.name
        for t in ec2_types.TYPES.values()
        if (t.architecture, t.gpus) == (single.architecture, single.gpus)
        and single.vcpus <= t.vcpus <= 2 * single.vcpus
        and t.memory_mib >= single.memory_mib
        and ".metal" not in t.name
        and t.name != single.name
    ]
    names = ",".join((*environment.instance_types, *similar[:_TYPES_ADDED]))
    return update_resources_command(
        environment, f"instanceTypes={names}   # AWS advises ten or more"
    )


check = check_types(KIND)(examine)
