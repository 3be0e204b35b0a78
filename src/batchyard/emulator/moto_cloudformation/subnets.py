"""Subnets of stacks. moto leaves out whether their instances have public addresses."""

from __future__ import annotations

from typing import Any

from moto.ec2.models.subnets import Subnet

Document = dict[str, Any]


class StackSubnet(Subnet):
    @classmethod
    def create_from_cloudformation_json(  # type: ignore[misc]
        cls, resource_name: str, cloudformation_json: Document, account_id: str, region_name: str, **kwargs: Any
    ) -> Subnet:
        made = Subnet.create_from_cloudformation_json(
            resource_name, cloudformation_json, account_id, region_name, **kwargs
        )
        said = cloudformation_json["Properties"].get("MapPublicIpOnLaunch", False)
        # A template's parameters are text.
        made.map_public_ip_on_launch = str(said).lower() == "true"
        return made
