"""BY030: the environment names instance types that do not exist. Also used for templates."""

from __future__ import annotations

from batchyard import ec2_types
from batchyard.doctor.checks.base import (
    InstanceTypes,
    Timing,
    check_each,
    check_facts,
    described_types,
    ec2_environments,
    join_names,
)
from batchyard.doctor.facts import Environment, Facts
from batchyard.doctor.finding import Finding, Findings, Kind, Severity, Verdict

KIND = Kind("BY030", Severity.ERROR, 86, "the instance types exist")
_MAX_SIZES_LISTED = 9


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    types = described_types(facts)
    return check_each(ec2_environments(facts), lambda environment: examine(environment, types))


def examine(environment: Environment, types: InstanceTypes | None = None) -> Findings:
    """``types`` are those that EC2 described; None where EC2 was not asked."""
    names = [
        name for name in environment.instance_types if ec2_types.is_known(name, types) is False
    ]
    if not names:
        return
    yield Finding(
        KIND,
        f"{environment.name} names instance types that do not exist",
        tuple(map(_evidence, names)),
        ("aws ec2 describe-instance-types --query 'InstanceTypes[].InstanceType' --output text",),
    )


def _evidence(name: str) -> str:
    family = ec2_types.family_of(name)
    sizes = [size for size in ec2_types.TYPES if ec2_types.family_of(size) == family]
    existing = f"; {family} has {join_names(sizes, _MAX_SIZES_LISTED)}" if sizes else ""
    return f"{name}: no such type{existing}"
