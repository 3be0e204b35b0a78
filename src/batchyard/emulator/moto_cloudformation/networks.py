"""Subnets and routes of stacks. moto updates neither, and forgets whether a subnet gives public addresses."""

from __future__ import annotations

from typing import Any

from moto.ec2.models import ec2_backends
from moto.ec2.models.route_tables import Route
from moto.ec2.models.subnets import Subnet

from batchyard.emulator.moto_cloudformation.own_model import Document, Refused


class StackSubnet(Subnet):
    @classmethod
    def create_from_cloudformation_json(  # type: ignore[misc]
        cls,
        resource_name: str,
        cloudformation_json: Document,
        account_id: str,
        region_name: str,
        **kwargs: Any,
    ) -> Subnet:
        made = Subnet.create_from_cloudformation_json(
            resource_name, cloudformation_json, account_id, region_name, **kwargs
        )
        made.map_public_ip_on_launch = _gives_addresses(cloudformation_json)
        return made

    @classmethod
    def update_from_cloudformation_json(  # type: ignore[misc]
        cls,
        original_resource: Subnet,
        new_resource_name: str,
        cloudformation_json: Document,
        account_id: str,
        region_name: str,
    ) -> Subnet:
        wanted = cloudformation_json["Properties"]
        if (wanted["VpcId"], wanted.get("CidrBlock")) != (
            original_resource.vpc_id,
            original_resource.cidr_block,
        ):
            raise Refused(
                "this endpoint does not replace a subnet: delete the stack and make it anew"
            )
        original_resource.map_public_ip_on_launch = _gives_addresses(cloudformation_json)
        return original_resource


class StackRoute(Route):
    @classmethod
    def update_from_cloudformation_json(  # type: ignore[misc]
        cls,
        original_resource: Route,
        new_resource_name: str,
        cloudformation_json: Document,
        account_id: str,
        region_name: str,
    ) -> Route:
        wanted = cloudformation_json["Properties"]
        table, destination = wanted["RouteTableId"], wanted.get("DestinationCidrBlock")
        if (table, destination) != (
            original_resource.route_table.id,
            original_resource.destination_cidr_block,
        ):
            raise Refused(
                "this endpoint does not replace a route: delete the stack and make it anew"
            )
        return ec2_backends[account_id][region_name].replace_route(
            table,
            destination,
            gateway_id=wanted.get("GatewayId"),
            nat_gateway_id=wanted.get("NatGatewayId"),
            egress_only_igw_id=wanted.get("EgressOnlyInternetGatewayId"),
            transit_gateway_id=wanted.get("TransitGatewayId"),
            instance_id=wanted.get("InstanceId"),
            interface_id=wanted.get("NetworkInterfaceId"),
            vpc_peering_connection_id=wanted.get("VpcPeeringConnectionId"),
        )


def _gives_addresses(cloudformation_json: Document) -> bool:
    # A template's parameters are text.
    return (
        str(cloudformation_json["Properties"].get("MapPublicIpOnLaunch", False)).lower() == "true"
    )
