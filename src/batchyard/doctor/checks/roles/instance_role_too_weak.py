"""BY036: the role of the instances may not do what the ECS agent does."""

from __future__ import annotations

from batchyard.doctor.checks.base import check_environments, ec2_environments, join_names
from batchyard.doctor.facts import Environment, Facts, Missing, require
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY036", Severity.ERROR, 84, "the instance profile's role may register with ECS")
#: AWS's policy for the role of ECS instances
ECS_POLICY = "arn:aws:iam::aws:policy/service-role/AmazonEC2ContainerServiceforEC2Role"


def _environments_with_profile(facts: Facts) -> list[Environment]:
    return [
        environment for environment in ec2_environments(facts) if environment.profile is not None
    ]


@check_environments(KIND, _environments_with_profile)
def check(environment: Environment, facts: Facts) -> Findings:
    profile = require(environment.profile or Missing())
    denied_actions = require(profile.denied)
    if not denied_actions:
        return
    find_role = (
        f"aws iam get-instance-profile --instance-profile-name {profile.name} "
        "--query 'InstanceProfile.Roles[0].RoleName' --output text"
    )
    yield Finding(
        KIND,
        f"the role of {environment.name}'s instances may not do what the ECS agent does",
        (f"refused to {profile.role or profile.name}: {join_names(denied_actions)}",),
        (
            f"aws iam attach-role-policy --role-name {profile.role or f'$({find_role})'} "
            f"--policy-arn {ECS_POLICY}",
        ),
    )
