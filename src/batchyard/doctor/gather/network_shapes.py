"""Convert AWS's shapes of subnets, endpoints and security groups to facts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from batchyard.doctor.facts import Endpoint, Missing, Rule, SecurityGroup, Subnet

_EVERYWHERE = "0.0.0.0/0"
_TARGETS = (
    "NatGatewayId",
    "GatewayId",
    "TransitGatewayId",
    "VpcPeeringConnectionId",
    "NetworkInterfaceId",
    "InstanceId",
    "EgressOnlyInternetGatewayId",
    "LocalGatewayId",
    "CarrierGatewayId",
)
_HTTPS = 443
#: A port that answers come back to.
_EPHEMERAL = 32768
_ALL, _TCP = "-1", "6"

Document = Mapping[str, Any]


def subnets_of(
    subnets: Sequence[Document],
    tables: Sequence[Document] | Missing,
    acls: Sequence[Document] | Missing,
) -> tuple[Subnet, ...]:
    return tuple(
        Subnet(
            subnet["SubnetId"],
            subnet.get("AvailabilityZone", ""),
            int(subnet.get("AvailableIpAddressCount", 0)),
            bool(subnet.get("MapPublicIpOnLaunch")),
            tables if isinstance(tables, Missing) else default_route(subnet, tables),
            subnet.get("VpcId", ""),
            acls if isinstance(acls, Missing) else find_blocking_rules(subnet["SubnetId"], acls),
        )
        for subnet in subnets
    )


def default_route(subnet: Document, tables: Sequence[Document]) -> str:
    """Return the target of the subnet's route to 0.0.0.0/0; empty if there is none."""
    for route in _find_route_table(subnet, tables).get("Routes", ()):
        is_active = route.get("State", "active") == "active"
        if is_active and route.get("DestinationCidrBlock") == _EVERYWHERE:
            return str(next((route[target] for target in _TARGETS if route.get(target)), ""))
    return ""


def _find_route_table(subnet: Document, tables: Sequence[Document]) -> Document:
    """Return the route table of the subnet, else the main one of its VPC."""
    main_table: Document = {}
    for table in tables:
        for association in table.get("Associations", ()):
            if association.get("SubnetId") == subnet["SubnetId"]:
                return table
            if association.get("Main") and table.get("VpcId") == subnet.get("VpcId"):
                main_table = table
    return main_table


def find_blocking_rules(subnet: str, acls: Sequence[Document]) -> tuple[str, ...]:
    """Return the rules of the subnet's network ACL that block HTTPS or its answers."""
    rules = []
    for acl in acls:
        if subnet not in {
            association.get("SubnetId") for association in acl.get("Associations", ())
        }:
            continue
        for is_egress, port, traffic in (
            (True, _HTTPS, "TCP 443 out"),
            (False, _EPHEMERAL, "answers in"),
        ):
            rule = _deciding_rule(acl.get("Entries", ()), is_egress, port)
            if rule is not None and rule.get("RuleAction") == "deny":
                name, number = acl.get("NetworkAclId", ""), rule.get("RuleNumber", "?")
                rules.append(f"{name}: rule {number} denies {traffic}")
    return tuple(rules)


def _deciding_rule(entries: Sequence[Document], is_egress: bool, port: int) -> Document | None:
    """Return the first rule that matches; None if there is none.

    A rule that allows only some addresses matches too: they may be those of endpoints.
    """
    for entry in sorted(entries, key=lambda entry: int(entry.get("RuleNumber", 0))):
        ports = entry.get("PortRange", {"From": 0, "To": 65535})
        if bool(entry.get("Egress")) is not is_egress or entry.get("Protocol") not in (_ALL, _TCP):
            continue
        if "CidrBlock" not in entry or not ports["From"] <= port <= ports["To"]:
            continue
        if entry.get("RuleAction") == "allow" or entry["CidrBlock"] == _EVERYWHERE:
            return entry
    return None


def endpoint_of(document: Document) -> Endpoint:
    """Return the endpoint; the service of `com.amazonaws.eu-west-1.ecr.dkr` is `ecr.dkr`."""
    service = ".".join(document.get("ServiceName", "").split(".")[3:])
    return Endpoint(service, document.get("VpcId", ""))


def group_of(document: Document) -> SecurityGroup:
    rules = [
        Rule(
            str(permission.get("IpProtocol", _ALL)),
            permission.get("FromPort", 0),
            permission.get("ToPort", 65535),
            to,
        )
        for permission in document.get("IpPermissionsEgress", ())
        for to in _targets(permission)
    ]
    return SecurityGroup(document["GroupId"], tuple(rules))


def _targets(permission: Document) -> list[str]:
    pairs = (("IpRanges", "CidrIp"), ("Ipv6Ranges", "CidrIpv6"), ("PrefixListIds", "PrefixListId"))
    targets = [
        str(entry[key])
        for member, key in pairs
        for entry in permission.get(member, ())
        if entry.get(key)
    ]
    return targets + [
        str(pair["GroupId"])
        for pair in permission.get("UserIdGroupPairs", ())
        if pair.get("GroupId")
    ]
