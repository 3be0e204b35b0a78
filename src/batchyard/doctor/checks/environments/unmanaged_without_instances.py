"""BY055: an unmanaged environment has no instances, and AWS Batch launches none for it."""

from __future__ import annotations

from batchyard.doctor.checks.base import (
    Check,
    Timing,
    Verdict,
    check_each,
    environments_of,
    place_of,
)
from batchyard.doctor.facts import Environment, Facts, require
from batchyard.doctor.finding import Finding, Kind, Severity

KIND = Kind("BY055", Severity.ERROR, 80, "an unmanaged environment has instances")


def check(facts: Facts, timing: Timing) -> Verdict:
    unmanaged = [e for e in environments_of(facts) if not e.is_managed and e.state == "ENABLED"]
    return check_each(unmanaged, _examine)


def _examine(environment: Environment) -> list[Finding]:
    if require(environment.hosts):
        return []
    return [
        Finding(
            KIND,
            f"{environment.name} is UNMANAGED and has no instances: AWS Batch launches none for it",
            ("0 container instances in its cluster",),
            (
                "raise the desired size of the Auto Scaling group that feeds its cluster, "
                "or use a MANAGED one",
            ),
            place_of(environment),
        )
    ]


CHECK = Check(check, (KIND,))
