"""BY023: an environment, or a queue, mixes CPU architectures. ``examine`` is used for templates."""

from __future__ import annotations

from batchyard import ec2_types
from batchyard.doctor.checks.base import (
    InstanceTypes,
    Timing,
    check_each,
    check_facts,
    ec2_environments,
    join_names,
    types_of,
    update_resources_command,
)
from batchyard.doctor.facts import Environment, Facts
from batchyard.doctor.finding import Finding, Findings, Kind, Severity, Verdict

KIND = Kind("BY023", Severity.ERROR, 80, "an environment has one architecture")


def examine(environment: Environment, types: InstanceTypes) -> Findings:
    evidence: tuple[str, ...]
    arm_types = [t.name for t in types if t.architecture == ec2_types.ARM]
    x86_types = [t.name for t in types if t.architecture != ec2_types.ARM]
    if arm_types and x86_types:
        cause = f"{environment.name} mixes architectures; an environment must have one"
        evidence = (f"arm64: {join_names(arm_types)}", f"x86_64: {join_names(x86_types)}")
    elif arm_types and any(t.gpus for t in types) and not environment.image_id:
        cause = f"{environment.name} has arm64 GPU hosts, for which AWS Batch has no image"
        evidence = (f"{join_names(arm_types)}, and no image of your own",)
    else:
        return
    remedy = update_resources_command(
        environment, "instanceTypes=TYPES   # all of one architecture"
    )
    yield Finding(KIND, cause, evidence, (remedy,))


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    """Examine each environment; where all are right, compare the environments of the queue."""
    environments = ec2_environments(facts)
    findings = check_each(environments, lambda e: examine(e, types_of(e, facts)))
    if findings is None or findings:
        return findings
    architectures = {e.name: {t.architecture for t in types_of(e, facts)} for e in environments}
    if len(set().union(*architectures.values())) < 2:
        return []
    return Finding(
        KIND,
        "the compute environments of the queue differ in architecture: "
        "an image runs on only some of them",
        (", ".join(f"{name} {join_names(sorted(a))}" for name, a in architectures.items()),),
        ("give each architecture a queue of its own",),
    )
