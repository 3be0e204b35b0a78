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
            "aws ec2 create-route --destination-cidr-block 0.0.0.0/0 "
            f"--route-table-id $({_find_route_table(subnet)}) "
            f"--nat-gateway-id $({_find_nat_gateway(subnet)})   # to a NAT gateway that exists",
            f"or: for service in {' '.join(missing)}; do aws ec2 create-vpc-endpoint "
            f"--vpc-id {subnet.vpc or 'VPC'} --subnet-ids {subnet.id} "
            "--vpc-endpoint-type Interface "
            f"--service-name com.amazonaws.{facts.subject.region or 'REGION'}.$service; done",
        ),
    )


def _find_route_table(subnet: Subnet) -> str:
    """Return the command that prints the id of the subnet's route table."""
    return (
        "aws ec2 describe-route-tables "
        f"--filters Name=association.subnet-id,Values={subnet.id} "
        "--query 'RouteTables[0].RouteTableId' --output text"
    )


def _find_nat_gateway(subnet: Subnet) -> str:
    vpc = f"--filter Name=vpc-id,Values={subnet.vpc} " if subnet.vpc else ""
    return f"aws ec2 describe-nat-gateways {vpc}--query 'NatGateways[0].NatGatewayId' --output text"
