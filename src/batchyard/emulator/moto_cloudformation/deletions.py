"""Delete resources of types that moto 5.2.5 creates for a stack but does not delete with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moto.autoscaling.models import autoscaling_backends
from moto.ec2.models import ec2_backends
from moto.ecs.models import ecs_backends
from moto.iam.models import iam_backends
from moto.utilities.utils import get_partition

from batchyard.emulator.moto_cloudformation.ecs_resources import delete_cluster
from batchyard.emulator.moto_cloudformation.resource_model import ResourceError

Document = dict[str, Any]
#: account, region, resolved properties of the resource, its physical id
Delete = Callable[[str, str, Document, str], object]


def _delete_managed_policy(
    account: str, region: str, properties: Document, physical_id: str
) -> None:
    iam_backends[account][get_partition(region)].delete_policy(physical_id)


def _delete_service(account: str, region: str, properties: Document, physical_id: str) -> None:
    name = physical_id.split("/")[-1]
    ecs_backends[account][region].delete_service(properties["Cluster"], name, force=True)


def _delete_group(account: str, region: str, properties: Document, physical_id: str) -> None:
    """Delete an Auto Scaling group. AWS waits for protected instances, and then gives up."""
    backend = autoscaling_backends[account][region]
    group = backend.autoscaling_groups.get(physical_id)
    if group is None:
        return
    if any(state.protected_from_scale_in for state in group.instance_states):
        raise ResourceError("Group did not stabilize: its instances are protected from scale-in")
    backend.delete_auto_scaling_group(physical_id)


def _in_ec2(delete: Callable[[Any, Document, str], object]) -> Delete:
    return lambda account, region, properties, physical_id: delete(
        ec2_backends[account][region], properties, physical_id
    )


def _in_ecs(delete: Callable[[Any, str], object]) -> Delete:
    return lambda account, region, properties, physical_id: delete(
        ecs_backends[account][region], physical_id
    )


#: resource type -> its deletion; moto 5.2.5 has none for any of these types
DELETIONS: dict[str, Delete] = {
    "AWS::EC2::EIP": _in_ec2(lambda ec2, properties, id: ec2.release_address(address=id)),
    "AWS::EC2::InternetGateway": _in_ec2(
        lambda ec2, properties, id: ec2.delete_internet_gateway(id)
    ),
    "AWS::EC2::NatGateway": _in_ec2(lambda ec2, properties, id: ec2.delete_nat_gateway(id)),
    "AWS::EC2::Route": _in_ec2(
        lambda ec2, properties, id: ec2.delete_route(
            properties["RouteTableId"], properties["DestinationCidrBlock"]
        )
    ),
    "AWS::EC2::RouteTable": _in_ec2(lambda ec2, properties, id: ec2.delete_route_table(id)),
    "AWS::EC2::VPCEndpoint": _in_ec2(lambda ec2, properties, id: ec2.delete_vpc_endpoints([id])),
    "AWS::EC2::VPCGatewayAttachment": _in_ec2(
        lambda ec2, properties, id: ec2.detach_internet_gateway(
            properties["InternetGatewayId"], properties["VpcId"]
        )
    ),
    "AWS::AutoScaling::AutoScalingGroup": _delete_group,
    "AWS::ECS::Cluster": delete_cluster,
    "AWS::ECS::Service": _delete_service,
    "AWS::ECS::TaskDefinition": _in_ecs(lambda ecs, id: ecs.deregister_task_definition(id)),
    "AWS::IAM::ManagedPolicy": _delete_managed_policy,
}
