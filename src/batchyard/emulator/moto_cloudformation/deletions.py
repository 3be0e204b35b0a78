"""Resource types that moto can make for a stack and has no way to delete with it, though its services can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moto.ec2.models import ec2_backends
from moto.ecs.models import ecs_backends
from moto.iam.models import iam_backends
from moto.utilities.utils import get_partition

Document = dict[str, Any]
#: account, region, the resource's properties with everything resolved, its physical id
Delete = Callable[[str, str, Document, str], object]


def _address(account: str, region: str, properties: Document, physical_id: str) -> None:
    ec2_backends[account][region].release_address(address=physical_id)


def _nat_gateway(account: str, region: str, properties: Document, physical_id: str) -> None:
    ec2_backends[account][region].delete_nat_gateway(physical_id)


def _managed_policy(account: str, region: str, properties: Document, physical_id: str) -> None:
    iam_backends[account][get_partition(region)].delete_policy(physical_id)


def _service(account: str, region: str, properties: Document, physical_id: str) -> None:
    ecs_backends[account][region].delete_service(
        properties["Cluster"], physical_id.split("/")[-1], force=True
    )


DELETIONS: dict[str, Delete] = {
    "AWS::EC2::EIP": _address,
    "AWS::EC2::InternetGateway": lambda a, r, p, i: ec2_backends[a][r].delete_internet_gateway(i),
    "AWS::EC2::NatGateway": _nat_gateway,
    "AWS::EC2::Route": lambda a, r, p, i: ec2_backends[a][r].delete_route(
        p["RouteTableId"], p["DestinationCidrBlock"]
    ),
    "AWS::EC2::RouteTable": lambda a, r, p, i: ec2_backends[a][r].delete_route_table(i),
    "AWS::EC2::VPCEndpoint": lambda a, r, p, i: ec2_backends[a][r].delete_vpc_endpoints([i]),
    "AWS::EC2::VPCGatewayAttachment": lambda a, r, p, i: ec2_backends[a][r].detach_internet_gateway(
        p["InternetGatewayId"], p["VpcId"]
    ),
    "AWS::ECS::Cluster": lambda a, r, p, i: ecs_backends[a][r].delete_cluster(i.split("/")[-1]),
    "AWS::ECS::Service": _service,
    "AWS::ECS::TaskDefinition": lambda a, r, p, i: ecs_backends[a][r].deregister_task_definition(i),
    "AWS::IAM::ManagedPolicy": _managed_policy,
}
