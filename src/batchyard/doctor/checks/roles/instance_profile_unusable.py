"""BY035: the instance profile is missing, or has no role."""

from __future__ import annotations

from batchyard.doctor.checks.base import check_environments, update_resources_command
from batchyard.doctor.facts import Environment, Facts, require
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY035", Severity.ERROR, 88, "the instance profile exists and has a role")
#: the name that AWS's guide gives the role of ECS instances, and its profile
_DEFAULT_ROLE = "ecsInstanceRole"


@check_environments(KIND)
def check(environment: Environment, facts: Facts) -> Findings:
    if environment.profile is None:
        yield _finding(
            environment,
            "none",
            "it names none",
            update_resources_command(environment, f"instanceRole={_DEFAULT_ROLE}"),
        )
        return
    profile = require(environment.profile)
    name = profile.name.rpartition("/")[2]
    create = f"aws iam create-instance-profile --instance-profile-name {name}"
    add_role = (
        f"aws iam add-role-to-instance-profile --instance-profile-name {name} "
        f"--role-name {_DEFAULT_ROLE}   # the role of AWS's guide, or one of yours"
    )
    if not profile.exists:
        yield _finding(environment, profile.name, "it does not exist", create, add_role)
    elif not profile.role:
        yield _finding(environment, profile.name, "it has no role", add_role)


def _finding(environment: Environment, profile_name: str, problem: str, *remedy: str) -> Finding:
    return Finding(
        KIND,
        f"the instance profile of {environment.name} cannot be used: {problem}",
        (f"instanceRole {profile_name}",),
        remedy,
    )
