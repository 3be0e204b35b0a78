"""BY042: the Spot fleet role is missing, or may not tag instances."""

from __future__ import annotations

from batchyard.doctor.checks.base import (
    Check,
    Timing,
    Verdict,
    check_each,
    ec2_environments,
    place_of,
)
from batchyard.doctor.checks.roles.spot_roles import uses_spot_fleet
from batchyard.doctor.facts import Environment, Facts, require
from batchyard.doctor.finding import Finding, Kind, Severity

KIND = Kind("BY042", Severity.ERROR, 74, "the Spot fleet role exists and may tag instances")
#: AWS's policy that allows a Spot fleet role to tag instances
TAGGING_POLICY = "arn:aws:iam::aws:policy/service-role/AmazonEC2SpotFleetTaggingRole"


def check(facts: Facts, timing: Timing) -> Verdict:
    return check_each(filter(uses_spot_fleet, ec2_environments(facts)), _examine)


def _examine(environment: Environment) -> list[Finding]:
    if environment.fleet_role is None:
        return [_finding(environment, "none", "there is none, and BEST_FIT on Spot needs one")]
    role = require(environment.fleet_role)
    if not role.exists:
        return [_finding(environment, role.name, "it does not exist")]
    if not role.can_tag:
        return [_finding(environment, role.name, "it may not tag instances")]
    return []


def _finding(environment: Environment, role_name: str, problem: str) -> Finding:
    strategy = environment.strategy or "not given: BEST_FIT"
    return Finding(
        KIND,
        f"the Spot fleet role of {environment.name} cannot be used: {problem}",
        (f"spotIamFleetRole {role_name}; strategy {strategy}",),
        (
            f"aws iam attach-role-policy --role-name ROLE --policy-arn {TAGGING_POLICY}",
            "or make an environment with SPOT_PRICE_CAPACITY_OPTIMIZED, which needs no such role",
        ),
        place_of(environment),
    )


CHECK = Check(check, (KIND,))
