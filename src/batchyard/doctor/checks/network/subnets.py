"""The subnets of compute environments, for the checks of this folder."""

from __future__ import annotations

from collections.abc import Callable

from batchyard.doctor.checks.base import Check, check_each, ec2_environments, join_names
from batchyard.doctor.facts import Environment, Facts, Missing, MissingFactError, Subnet, require
from batchyard.doctor.finding import Finding, Findings, Kind


def subnets_of(environment: Environment, facts: Facts) -> list[Subnet]:
    """Return the subnets of the environment that could be described."""
    by_id = {subnet.id: subnet for subnet in require(facts.subnets)}
    return [by_id[subnet_id] for subnet_id in environment.subnets if subnet_id in by_id]


def check_subnets(kind: Kind) -> Callable[[Callable[[Subnet, Facts], Findings]], Check]:
    """Make a check of a function that examines a subnet of a managed EC2 environment."""

    def make(examine: Callable[[Subnet, Facts], Findings]) -> Check:
        return Check(lambda facts, timing: _check_subnets(facts, examine), (kind,))

    return make


def _check_subnets(
    facts: Facts, examine: Callable[[Subnet, Facts], Findings]
) -> list[Finding] | None:
    """Raises MissingFactError where a subnet could not be described and no other has a finding."""

    def examine_environment(environment: Environment) -> Findings:
        for subnet in subnets_of(environment, facts):
            yield from examine(subnet, facts)

    environments = ec2_environments(facts)
    findings = check_each(environments, examine_environment)
    if findings is None or findings:
        return findings
    ids = {subnet.id for subnet in require(facts.subnets)}
    missing_ids = [s for environment in environments for s in environment.subnets if s not in ids]
    if missing_ids:
        raise MissingFactError(
            Missing(f"{join_names(missing_ids)} could not be described", "ec2:DescribeSubnets")
        )
    return []
