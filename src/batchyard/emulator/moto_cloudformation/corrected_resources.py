"""Resource types of moto that create, update or delete less than AWS does."""

from __future__ import annotations

from typing import Any, Self

from moto.cloudformation.exceptions import UnformattedGetAttTemplateException
from moto.ec2.models import ec2_backends
from moto.ec2.models.route_tables import Route
from moto.ec2.models.subnets import Subnet
from moto.iam.models import Role, iam_backends
from moto.ssm.models import Parameter, ssm_backends
from moto.utilities.utils import get_partition

from batchyard.emulator.moto_cloudformation.resource_model import (
    AccountRegion,
    Document,
    ResourceError,
    ResourceModel,
    document_text,
)


class StackRole(Role):
    """AWS::IAM::Role.

    moto 5.2.5: keeps inline policies as Python's text of a dict, ignores ManagedPolicyArns, updates
    only the description, and cannot delete a role that has managed policies.
    """

    @classmethod
    def create_from_cloudformation_json(  # type: ignore[misc]
        cls,
        resource_name: str,
        cloudformation_json: Document,
        account_id: str,
        region_name: str,
        **kwargs: Any,
    ) -> Role:
        role = Role.create_from_cloudformation_json(
            resource_name, cloudformation_json, account_id, region_name, **kwargs
        )
        _set_policies(role, cloudformation_json["Properties"], account_id, region_name)
        return role

    @classmethod
    def update_from_cloudformation_json(  # type: ignore[misc]
        cls,
        original_resource: Role,
        new_resource_name: str,
        cloudformation_json: Document,
        account_id: str,
        region_name: str,
    ) -> Role:
        role, properties = original_resource, cloudformation_json["Properties"]
        role.description = properties.get("Description", "")
        role.max_session_duration = properties.get("MaxSessionDuration", 3600)
        role.permissions_boundary_arn = properties.get("PermissionsBoundary", "")
        role.assume_role_policy_document = document_text(properties["AssumeRolePolicyDocument"])
        _set_policies(role, properties, account_id, region_name)
        return role

    @classmethod
    def delete_from_cloudformation_json(  # type: ignore[misc]
        cls, resource_name: str, cloudformation_json: Document, account_id: str, region_name: str
    ) -> None:
        backend = iam_backends[account_id][get_partition(region_name)]
        # As on AWS, a policy that the template did not attach keeps the role from being deleted.
        attached = set(backend.get_role(resource_name).managed_policies)
        for arn in attached & {*cloudformation_json["Properties"].get("ManagedPolicyArns", [])}:
            backend.detach_role_policy(arn, resource_name)
        Role.delete_from_cloudformation_json(
            resource_name, cloudformation_json, account_id, region_name
        )


def _set_policies(role: Role, properties: Document, account_id: str, region_name: str) -> None:
    """Give the role the inline and managed policies of the template, and no others."""
    role.policies.clear()
    for policy in properties.get("Policies", []):
        role.put_policy(policy["PolicyName"], document_text(policy["PolicyDocument"]))
    backend = iam_backends[account_id][get_partition(region_name)]
    for arn in list(role.managed_policies):
        backend.detach_role_policy(arn, role.name)
    for arn in properties.get("ManagedPolicyArns", []):
        backend.attach_role_policy(arn, role.name)


class StackSubnet(Subnet):
    """AWS::EC2::Subnet. moto 5.2.5: ignores MapPublicIpOnLaunch, and has no update."""

    @classmethod
    def create_from_cloudformation_json(  # type: ignore[misc]
        cls,
        resource_name: str,
        cloudformation_json: Document,
        account_id: str,
        region_name: str,
        **kwargs: Any,
    ) -> Subnet:
        subnet = Subnet.create_from_cloudformation_json(
            resource_name, cloudformation_json, account_id, region_name, **kwargs
        )
        subnet.map_public_ip_on_launch = _maps_public_ip(cloudformation_json)
        return subnet

    @classmethod
    def update_from_cloudformation_json(  # type: ignore[misc]
        cls,
        original_resource: Subnet,
        new_resource_name: str,
        cloudformation_json: Document,
        account_id: str,
        region_name: str,
    ) -> Subnet:
        subnet, properties = original_resource, cloudformation_json["Properties"]
        if (properties["VpcId"], properties.get("CidrBlock")) != (subnet.vpc_id, subnet.cidr_block):
            raise ResourceError(
                "this endpoint does not replace a subnet: delete the stack and create it again"
            )
        subnet.map_public_ip_on_launch = _maps_public_ip(cloudformation_json)
        return subnet


def _maps_public_ip(cloudformation_json: Document) -> bool:
    # The value of a template's parameter is text.
    text = str(cloudformation_json["Properties"].get("MapPublicIpOnLaunch", False))
    return text.lower() == "true"


class StackRoute(Route):
    """AWS::EC2::Route. moto 5.2.5: has no update."""

    @classmethod
    def update_from_cloudformation_json(  # type: ignore[misc]
        cls,
        original_resource: Route,
        new_resource_name: str,
        cloudformation_json: Document,
        account_id: str,
        region_name: str,
    ) -> Route:
        route, properties = original_resource, cloudformation_json["Properties"]
        table, destination = properties["RouteTableId"], properties.get("DestinationCidrBlock")
        if (table, destination) != (route.route_table.id, route.destination_cidr_block):
            raise ResourceError(
                "this endpoint does not replace a route: delete the stack and create it again"
            )
        return ec2_backends[account_id][region_name].replace_route(
            table,
            destination,
            gateway_id=properties.get("GatewayId"),
            nat_gateway_id=properties.get("NatGatewayId"),
            egress_only_igw_id=properties.get("EgressOnlyInternetGatewayId"),
            transit_gateway_id=properties.get("TransitGatewayId"),
            instance_id=properties.get("InstanceId"),
            interface_id=properties.get("NetworkInterfaceId"),
            vpc_peering_connection_id=properties.get("VpcPeeringConnectionId"),
        )


class SubnetRouteTableAssociation(ResourceModel):
    """AWS::EC2::SubnetRouteTableAssociation.

    moto 5.2.5: keeps the association of a stack where DescribeRouteTables does not look.
    """

    TYPE = "AWS::EC2::SubnetRouteTableAssociation"
    ATTRIBUTES = ("Id",)

    def get_cfn_attribute(self, attribute_name: str) -> Any:
        if attribute_name != "Id":
            raise UnformattedGetAttTemplateException()
        return self.physical_id

    @classmethod
    def create(
        cls, name: str, properties: Document, location: AccountRegion, logical_id: str
    ) -> Self:
        backend = ec2_backends[location.account_id][location.region_name]
        table, subnet = properties["RouteTableId"], properties["SubnetId"]
        return cls(backend.associate_route_table(table, subnet_id=subnet))

    def update(self, name: str, properties: Document, location: AccountRegion) -> Self:
        # A subnet has one route table at a time, so the old association goes first.
        self.delete(location)
        association = self.create(name, properties, location, self.logical_resource_id)
        self.physical_id = association.physical_id
        return self

    def delete(self, location: AccountRegion) -> None:
        backend = ec2_backends[location.account_id][location.region_name]
        backend.disassociate_route_table(self.physical_id)


class StackParameter(Parameter):
    """AWS::SSM::Parameter. moto 5.2.5: takes a list of tags, and an update begins at version 1."""

    @classmethod
    def create_from_cloudformation_json(  # type: ignore[misc]
        cls,
        resource_name: str,
        cloudformation_json: Document,
        account_id: str,
        region_name: str,
        **kwargs: Any,
    ) -> Parameter:
        tags = cloudformation_json["Properties"].get("Tags", {})
        properties = {
            **cloudformation_json["Properties"],
            "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
        }
        return Parameter.create_from_cloudformation_json(
            resource_name,
            {**cloudformation_json, "Properties": properties},
            account_id,
            region_name,
            **kwargs,
        )

    @classmethod
    def update_from_cloudformation_json(  # type: ignore[misc]
        cls,
        original_resource: Parameter,
        new_resource_name: str,
        cloudformation_json: Document,
        account_id: str,
        region_name: str,
    ) -> Parameter:
        properties = cloudformation_json["Properties"]
        backend = ssm_backends[account_id][region_name]
        return backend.put_parameter(
            name=original_resource.name,
            description=properties.get("Description", ""),
            value=properties["Value"],
            parameter_type=properties["Type"],
            allowed_pattern=properties.get("AllowedPattern"),
            keyid="",
            overwrite=True,
            tags=[],
            data_type=properties.get("DataType", "text"),
            tier=properties.get("Tier"),
            policies=properties.get("Policies"),
        )


MODELS: tuple[Any, ...] = (
    StackRole,
    StackSubnet,
    StackRoute,
    StackParameter,
    SubnetRouteTableAssociation,
)
