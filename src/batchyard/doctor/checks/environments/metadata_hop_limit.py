"""BY056: containers cannot reach the instance metadata service. Also used for templates."""

from __future__ import annotations

from batchyard.doctor.checks.base import (
    Check,
    Timing,
    Verdict,
    check_launch_templates,
    ec2_environments,
    place_of,
)
from batchyard.doctor.facts import Environment, Facts
from batchyard.doctor.finding import Finding, Kind, Severity

KIND = Kind("BY056", Severity.WARNING, 20, "containers can reach the metadata service")


def examine(environment: Environment, hop_limit: int | None) -> list[Finding]:
    if hop_limit != 1:
        return []
    return [
        Finding(
            KIND,
            "the launch template prevents containers from reaching the metadata service",
            ("HttpPutResponseHopLimit 1; a container in bridge mode needs 2",),
            ("set HttpPutResponseHopLimit: 2 in the launch template, or leave it to the image",),
            place_of(environment),
        )
    ]


def check(facts: Facts, timing: Timing) -> Verdict:
    return check_launch_templates(
        ec2_environments(facts),
        lambda environment, template: examine(environment, template.hop_limit),
    )


CHECK = Check(check, (KIND,))
