"""BY036: the role of the instances may not do what the ECS agent does."""

from __future__ import annotations

from batchyard.doctor.checks.base import (
    Check,
    Timing,
    Verdict,
    check_each,
    ec2_environments,
    join_names,
    place_of,
)
from batchyard.doctor.facts import Environment, Facts, Missing, require
from batchyard.doctor.finding import Finding, Kind, Severity

KIND = Kind("BY036", Severity.ERROR, 84, "the instance profile's role may register with ECS")
#: AWS's policy for the role of ECS instances
ECS_POLICY = "arn:aws:iam::aws:policy/service-role/AmazonEC2ContainerServiceforEC2Role"


def check(facts: Facts, timing: Timing) -> Verdict:
    with_profile = [e for e in ec2_environments(facts) if e.profile is not None]
    return check_each(with_profile, _examine)


def _examine(environment: Environment) -> list[Finding]:
    profile = require(environment.profile or Missing())
    denied_actions = require(profile.denied)
    if not denied_actions:
        return []
    return [
        Finding(
            KIND,
            f"the role of {environment.name}'s instances may not do what the ECS agent does",
            (f"refused to {profile.role or profile.name}: {join_names(denied_actions)}",),
            (
                f"aws iam attach-role-policy --role-name {profile.role or 'ROLE'} "
                f"--policy-arn {ECS_POLICY}",
            ),
            place_of(environment),
        )
    ]


CHECK = Check(check, (KIND,))
