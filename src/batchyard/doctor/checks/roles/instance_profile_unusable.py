"""BY035: the instance profile is missing, or has no role."""

from __future__ import annotations

from batchyard.doctor.checks.base import Check, over_environments, place_of
from batchyard.doctor.facts import Environment, require
from batchyard.doctor.finding import Finding, Kind, Severity

KIND = Kind("BY035", Severity.ERROR, 88, "the instance profile exists and has a role")


def _examine(environment: Environment) -> list[Finding]:
    if environment.profile is None:
        return [_finding(environment, "none", "it names none")]
    profile = require(environment.profile)
    if not profile.exists:
        return [_finding(environment, profile.name, "it does not exist")]
    if not profile.role:
        return [_finding(environment, profile.name, "it has no role")]
    return []


def _finding(environment: Environment, profile_name: str, problem: str) -> Finding:
    return Finding(
        KIND,
        f"the instance profile of {environment.name} cannot be used: {problem}",
        (f"instanceRole {profile_name}",),
        (
            "aws iam create-instance-profile --instance-profile-name NAME",
            "aws iam add-role-to-instance-profile --instance-profile-name NAME --role-name ROLE",
        ),
        place_of(environment),
    )


CHECK = Check(over_environments(_examine), (KIND,))
