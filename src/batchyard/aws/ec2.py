"""EC2: networks, instance types, launch templates, instances. Every method is one call; AWS's own shapes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchyard.aws.session import AwsSession, naming_errors

#: EC2 takes so many values in one filter
_MOST_VALUES = 200


class Ec2:
    def __init__(self, session: AwsSession) -> None:
        self._session = session

    def subnets(self, ids: Sequence[str]) -> list[Any]:
        """Those of them that exist: by a filter, since an unknown id is an error otherwise."""
        return self._all("describe_subnets", "Subnets", "subnets", "subnet-id", ids)

    def route_tables(self, vpcs: Sequence[str]) -> list[Any]:
        return self._all("describe_route_tables", "RouteTables", "route tables", "vpc-id", vpcs)

    def endpoints(self, vpcs: Sequence[str]) -> list[Any]:
        return self._all("describe_vpc_endpoints", "VpcEndpoints", "VPC endpoints", "vpc-id", vpcs)

    def security_groups(self, ids: Sequence[str]) -> list[Any]:
        return self._all(
            "describe_security_groups", "SecurityGroups", "security groups", "group-id", ids
        )

    def network_acls(self, subnets: Sequence[str]) -> list[Any]:
        return self._all(
            "describe_network_acls", "NetworkAcls", "network ACLs", "association.subnet-id", subnets
        )

    def instance_types(self, patterns: Sequence[str]) -> list[Any]:
        """``patterns``: `g5.xlarge`, or `g5.*` for a family. What does not exist is left out."""
        what = "instance types"
        return self._all(
            "describe_instance_types", "InstanceTypes", what, "instance-type", patterns
        )

    def offerings(self, types: Sequence[str]) -> list[Any]:
        """Which of these types is offered in which zone."""
        with naming_errors("ask where instance types are offered"):
            answer = self._session.client("ec2").describe_instance_type_offerings(
                LocationType="availability-zone", Filters=[_filter("instance-type", types)]
            )
        return list(answer["InstanceTypeOfferings"])

    def launch_template(self, version: str, *, id: str = "", name: str = "") -> Any:
        """What the version of the template says; by its id, or by its name."""
        which = {"LaunchTemplateId": id} if id else {"LaunchTemplateName": name}
        with naming_errors(f"ask about the launch template {id or name}"):
            answer = self._session.client("ec2").describe_launch_template_versions(
                **which, Versions=[version]
            )
        return answer["LaunchTemplateVersions"][0]

    def spot_fleets(self) -> list[Any]:
        with naming_errors("ask about Spot Fleets"):
            return list(
                self._session.client("ec2").describe_spot_fleet_requests()[
                    "SpotFleetRequestConfigs"
                ]
            )

    def spot_fleet_history(self, fleet: str, since: str) -> list[Any]:
        """What went wrong in a Spot Fleet since a time (ISO)."""
        with naming_errors(f"ask about the history of {fleet}"):
            answer = self._session.client("ec2").describe_spot_fleet_request_history(
                SpotFleetRequestId=fleet, EventType="error", StartTime=since
            )
        return list(answer["HistoryRecords"])

    def _all(
        self, operation: str, member: str, what: str, name: str, values: Sequence[str]
    ) -> list[Any]:
        with naming_errors(f"ask about {what}"):
            answer = getattr(self._session.client("ec2"), operation)(
                Filters=[_filter(name, values)]
            )
        return list(answer[member])


def _filter(name: str, values: Sequence[str]) -> dict[str, Any]:
    return {"Name": name, "Values": list(values)[:_MOST_VALUES]}
