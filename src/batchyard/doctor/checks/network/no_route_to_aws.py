"""BY031: instances of a subnet have neither a route out nor the endpoints that they need."""

from __future__ import annotations

from batchyard.doctor.checks.network.subnets import check_subnets
from batchyard.doctor.facts import Facts, Subnet, require
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind(
    "BY031", Severity.ERROR, 82, "instances in every subnet can reach ECS, ECR and the logs"
)
#: the endpoints that a host without a route to the internet needs
_NEEDED_ENDPOINTS = ("ecs", "ecs-agent", "ecs-telemetry", "ecr.api", "ecr.dkr", "logs", "s3")


@check_subnets(KIND)
def check(subnet: Subnet, facts: Facts) -> Findings:
    if require(subnet.default_route):
        return
    services = {e.service for e in require(facts.endpoints) if e.vpc == subnet.vpc}
    missing = [service for service in _NEEDED_ENDPOINTS if service not in services]
    if not missing:
        return
    yield Finding(
        KIND,
        f"instances in {subnet.id} cannot reach AWS: no route out, and endpoints are missing",
        (
            f"no route for 0.0.0.0/0; {len(missing)} of {len(_NEEDED_ENDPOINTS)} "
            f"endpoints missing: {', '.join(missing)}",
        ),
        (
            "aws ec2 create-route --route-table-id TABLE "
            "--destination-cidr-block 0.0.0.0/0 --nat-gateway-id NAT",
            f"or, for each: aws ec2 create-vpc-endpoint --vpc-id {subnet.vpc or 'VPC'} "
            f"--subnet-ids {subnet.id} --vpc-endpoint-type Interface --service-name "
            f"com.amazonaws.{facts.subject.region or 'REGION'}.{missing[0]}",
        ),
    )
