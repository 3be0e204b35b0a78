"""BY049: a Fargate job cannot reach its image.

A Fargate task pulls the image itself, through the address of the task.
"""

from __future__ import annotations

from batchyard.doctor.checks.base import (
    Timing,
    check_each,
    check_facts,
    environments_of,
    waiting_job,
)
from batchyard.doctor.checks.network.subnets import subnets_of
from batchyard.doctor.facts import Environment, Facts, Subnet, require
from batchyard.doctor.finding import Finding, Findings, Kind, Severity, Verdict

KIND = Kind("BY049", Severity.ERROR, 80, "a Fargate job can reach its image")
#: the endpoints that a Fargate task without a route to the internet needs
_NEEDED_ENDPOINTS = ("ecr.api", "ecr.dkr", "logs", "s3")


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    job = waiting_job(facts)
    if job is None or job.platform != "FARGATE":
        return None

    def examine(environment: Environment) -> Findings:
        for subnet in subnets_of(environment, facts):
            yield from _examine_subnet(subnet, facts, job.assigns_public_ip)

    require(facts.subnets)
    return check_each([e for e in environments_of(facts) if e.is_fargate], examine) or []


def _examine_subnet(subnet: Subnet, facts: Facts, has_public_address: bool) -> Findings:
    route = require(subnet.default_route)
    if route and (has_public_address or not route.startswith("igw-")):
        return
    endpoints = facts.endpoints if isinstance(facts.endpoints, tuple) else ()
    services = {endpoint.service for endpoint in endpoints if endpoint.vpc == subnet.vpc}
    missing = [service for service in _NEEDED_ENDPOINTS if service not in services]
    if not missing:
        return
    yield Finding(
        KIND,
        f"a Fargate job in {subnet.id} cannot reach its image: "
        "it has no public address, and no other route out",
        (
            f"assignPublicIp {'ENABLED' if has_public_address else 'DISABLED'}; "
            f"0.0.0.0/0 goes to {route or 'nowhere'}",
            f"endpoints missing: {', '.join(missing)}",
        ),
        ("set assignPublicIp=ENABLED in the job definition, or use subnets behind a NAT gateway",),
    )
