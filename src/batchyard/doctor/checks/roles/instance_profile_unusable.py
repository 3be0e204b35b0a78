"""BY035: the instance profile is missing, or has no role."""

from __future__ import annotations

from batchyard.doctor.checks.base import check_environments
from batchyard.doctor.facts import Environment, Facts, require
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY035", Severity.ERROR, 88, "the instance profile exists and has a role")


@check_environments(KIND)
def check(environment: Environment, facts: Facts) -> Findings:
    if environment.profile is None:
        yield _finding(environment, "none", "it names none")
        return
    profile = require(environment.profile)
    if not profile.exists:
        yield _finding(environment, profile.name, "it does not exist")
    elif not profile.role:
        yield _finding(environment, profile.name, "it has no role")


def _finding(environment: Environment, profile_name: str, problem: str) -> Finding:
    return Finding(
        KIND,
        f"the instance profile of {environment.name} cannot be used: {problem}",
        (f"instanceRole {profile_name}",),
        (
            "aws iam create-instance-profile --instance-profile-name NAME",
            "aws iam add-role-to-instance-profile --instance-profile-name NAME --role-name ROLE",
        ),
    )
