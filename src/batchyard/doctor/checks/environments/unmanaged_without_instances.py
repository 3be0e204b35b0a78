"""BY055: an unmanaged environment has no instances, and AWS Batch launches none for it."""

from __future__ import annotations

from batchyard.doctor.checks.base import check_environments, environments_of
from batchyard.doctor.facts import Environment, Facts, require
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY055", Severity.ERROR, 80, "an unmanaged environment has instances")


def _unmanaged_environments(facts: Facts) -> list[Environment]:
    return [e for e in environments_of(facts) if not e.is_managed and e.state == "ENABLED"]


@check_environments(KIND, _unmanaged_environments)
def check(environment: Environment, facts: Facts) -> Findings:
    if require(environment.hosts):
        return
    yield Finding(
        KIND,
        f"{environment.name} is UNMANAGED and has no instances: AWS Batch launches none for it",
        ("0 container instances in its cluster",),
        (
            "raise the desired size of the Auto Scaling group that feeds its cluster, "
            "or use a MANAGED one",
        ),
    )
