"""EC2: networks, instance types and launch templates. One call per method, AWS's shapes out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from batchyard.aws.session import AwsSession, naming_errors

#: Values that EC2 accepts in one filter.
_MAX_VALUES = 200
#: Types of one DescribeSpotPriceHistory, and its largest page.
MAX_SPOT_TYPES = 100
_MAX_SPOT_PRICES = 1000


class Ec2:
    def __init__(self, session: AwsSession) -> None:
        self._session = session

    def subnets(self, ids: Sequence[str]) -> list[Any]:
        """Return the subnets that exist: a filter accepts ids that do not, a list does not."""
        return self._describe("describe_subnets", "Subnets", "subnets", "subnet-id", ids)

    def route_tables(self, vpcs: Sequence[str]) -> list[Any]:
        return self._describe(
            "describe_route_tables", "RouteTables", "route tables", "vpc-id", vpcs
        )

    def endpoints(self, vpcs: Sequence[str]) -> list[Any]:
        return self._describe(
            "describe_vpc_endpoints", "VpcEndpoints", "VPC endpoints", "vpc-id", vpcs
        )

    def security_groups(self, ids: Sequence[str]) -> list[Any]:
        return self._describe(
            "describe_security_groups", "SecurityGroups", "security groups", "group-id", ids
        )

    def network_acls(self, subnets: Sequence[str]) -> list[Any]:
        return self._describe(
            "describe_network_acls", "NetworkAcls", "network ACLs", "association.subnet-id", subnets
        )

    def instance_types(self, patterns: Sequence[str]) -> list[Any]:
        """Return the types that match: `g5.xlarge`, or `g5.*` for a family."""
        noun = "instance types"
        return self._describe(
            "describe_instance_types", "InstanceTypes", noun, "instance-type", patterns
        )

    def zones(self) -> list[str]:
        """Return the names of the availability zones of the region, without local zones."""
        with naming_errors("describe the availability zones"):
            answer = self._session.client("ec2").describe_availability_zones(
                Filters=[_filter("opt-in-status", ["opt-in-not-required"])]
            )
        return [zone["ZoneName"] for zone in answer["AvailabilityZones"]]

    def offerings(self, types: Sequence[str]) -> list[Any]:
        """Return the zones in which each of the types is offered."""
        with naming_errors("describe the offerings of instance types"):
            answer = self._session.client("ec2").describe_instance_type_offerings(
                LocationType="availability-zone", Filters=[_filter("instance-type", types)]
            )
        return list(answer["InstanceTypeOfferings"])

    def spot_prices(self, types: Sequence[str], at_time: datetime) -> list[Any]:
        """Return the prices of at most 100 types at a time, one for each type and zone."""
        with naming_errors("read Spot prices"):
            answer = self._session.client("ec2").describe_spot_price_history(
                InstanceTypes=list(types)[:MAX_SPOT_TYPES],
                ProductDescriptions=["Linux/UNIX"],
                StartTime=at_time,
                MaxResults=_MAX_SPOT_PRICES,
            )
        return list(answer["SpotPriceHistory"])

    def spot_price_history(
        self, types: Sequence[str], start: datetime, end: datetime
    ) -> Iterator[Any]:
        """Yield the prices of the types between two times, and those that were valid at the first.

        EC2 has them for 90 days.
        """
        with naming_errors("read the history of Spot prices"):
            pages = (
                self._session.client("ec2")
                .get_paginator("describe_spot_price_history")
                .paginate(
                    InstanceTypes=list(types),
                    ProductDescriptions=["Linux/UNIX"],
                    StartTime=start,
                    EndTime=end,
                )
            )
            for page in pages:
                yield from page["SpotPriceHistory"]

    def instances(self, ids: Sequence[str]) -> list[Any]:
        """Return the instances that EC2 knows: those that run, or ended in the last hour."""
        documents: list[Any] = []
        for first in range(0, len(ids), _MAX_VALUES):
            reservations = self._describe(
                "describe_instances",
                "Reservations",
                "instances",
                "instance-id",
                ids[first : first + _MAX_VALUES],
            )
            documents += [entry for group in reservations for entry in group["Instances"]]
        return documents

    def volumes(self, ids: Sequence[str]) -> list[Any]:
        """Return the volumes that EC2 knows: those of an instance are gone with it."""
        return [
            volume
            for first in range(0, len(ids), _MAX_VALUES)
            for volume in self._describe(
                "describe_volumes",
                "Volumes",
                "volumes",
                "volume-id",
                ids[first : first + _MAX_VALUES],
            )
        ]

    def launch_template(self, version: str, *, id: str = "", name: str = "") -> Any:
        """Return a version of a launch template, found by its id or its name."""
        key = {"LaunchTemplateId": id} if id else {"LaunchTemplateName": name}
        with naming_errors(f"describe the launch template {id or name}"):
            answer = self._session.client("ec2").describe_launch_template_versions(
                **key, Versions=[version]
            )
        return answer["LaunchTemplateVersions"][0]

    def spot_fleets(self) -> list[Any]:
        with naming_errors("describe Spot Fleets"):
            return list(
                self._session.client("ec2").describe_spot_fleet_requests()[
                    "SpotFleetRequestConfigs"
                ]
            )

    def spot_fleet_history(self, fleet: str, since: str) -> list[Any]:
        """Return the errors of a Spot Fleet since a time (ISO 8601)."""
        with naming_errors(f"read the history of {fleet}"):
            answer = self._session.client("ec2").describe_spot_fleet_request_history(
                SpotFleetRequestId=fleet, EventType="error", StartTime=since
            )
        return list(answer["HistoryRecords"])

    def _describe(
        self, operation: str, member: str, noun: str, name: str, values: Sequence[str]
    ) -> list[Any]:
        with naming_errors(f"describe {noun}"):
            answer = getattr(self._session.client("ec2"), operation)(
                Filters=[_filter(name, values)]
            )
        return list(answer[member])


def _filter(name: str, values: Sequence[str]) -> dict[str, Any]:
    return {"Name": name, "Values": list(values)[:_MAX_VALUES]}
