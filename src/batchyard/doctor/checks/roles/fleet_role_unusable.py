"""BY042: the Spot fleet role is missing, or may not tag instances."""

from __future__ import annotations

from batchyard.doctor.checks.base import check_environments, ec2_environments
from batchyard.doctor.checks.roles.spot_roles import uses_spot_fleet
from batchyard.doctor.facts import Environment, Facts, require
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY042", Severity.ERROR, 74, "the Spot fleet role exists and may tag instances")
#: AWS's policy that allows a Spot fleet role to tag instances
TAGGING_POLICY = "arn:aws:iam::aws:policy/service-role/AmazonEC2SpotFleetTaggingRole"
#: the name that AWS's guide gives the role
_DEFAULT_ROLE = "AmazonEC2SpotFleetTaggingRole"
_TRUST_POLICY = (
    '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sts:AssumeRole",'
    '"Principal":{"Service":"spotfleet.amazonaws.com"}}]}'
)


def _fleet_environments(facts: Facts) -> list[Environment]:
    return [environment for environment in ec2_environments(facts) if uses_spot_fleet(environment)]


@check_environments(KIND, _fleet_environments)
def check(environment: Environment, facts: Facts) -> Findings:
    if environment.fleet_role is None:
        yield _finding(environment, "", "there is none, and BEST_FIT on Spot needs one")
        return
    role = require(environment.fleet_role)
    if not role.exists:
        yield _finding(environment, role.name, "it does not exist")
    elif not role.can_tag:
        yield _finding(environment, role.name, "it may not tag instances", exists=True)


def _finding(environment: Environment, role: str, problem: str, exists: bool = False) -> Finding:
    # A role is given by its name or by its ARN.
    name = role.rpartition("/")[2] or _DEFAULT_ROLE
    attach = f"aws iam attach-role-policy --role-name {name} --policy-arn {TAGGING_POLICY}"
    create = (
        f"aws iam create-role --role-name {name} --assume-role-policy-document '{_TRUST_POLICY}'"
    )
    strategy = environment.strategy or "not given: BEST_FIT"
    return Finding(
        KIND,
        f"the Spot fleet role of {environment.name} cannot be used: {problem}",
        (f"spotIamFleetRole {role or 'none'}; strategy {strategy}",),
        (
            attach if exists else f"{create} && {attach}",
            "or make an environment with SPOT_PRICE_CAPACITY_OPTIMIZED, which needs no such role",
        ),
    )
