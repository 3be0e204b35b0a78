"""Subnets with their routes and ACLs, endpoints and security groups as facts. Pure."""

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
#: where the answers come back to
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
            acls if isinstance(acls, Missing) else blocked_by(subnet["SubnetId"], acls),
        )
        for subnet in subnets
    )


def default_route(subnet: Document, tables: Sequence[Document]) -> str:
    """Where 0.0.0.0/0 goes from a subnet: by its own route table, else by the main one of its VPC."""
    own, main = None, None
    for table in tables:
        for association in table.get("Associations", ()):
            if association.get("SubnetId") == subnet["SubnetId"]:
                own = table
            elif association.get("Main") and table.get("VpcId") == subnet.get("VpcId"):
                main = table
    for route in (own or main or {}).get("Routes", ()):
        if (
            route.get("DestinationCidrBlock") == _EVERYWHERE
            and route.get("State", "active") == "active"
        ):
            return str(next((route[target] for target in _TARGETS if route.get(target)), ""))
    return ""


def blocked_by(subnet: str, acls: Sequence[Document]) -> tuple[str, ...]:
    """Of the subnet's network ACL: the rules that keep HTTPS in, and its answers out."""
    found = []
    for acl in acls:
        if subnet not in {
            association.get("SubnetId") for association in acl.get("Associations", ())
        }:
            continue
        for is_egress, port, what in (
            (True, _HTTPS, "TCP 443 out"),
            (False, _EPHEMERAL, "answers in"),
        ):
            rule = _deciding_rule(acl.get("Entries", ()), is_egress, port)
            if rule is not None and rule.get("RuleAction") == "deny":
                found.append(
                    f"{acl.get('NetworkAclId', '')}: rule {rule.get('RuleNumber', '?')} denies {what}"
                )
    return tuple(found)


def _deciding_rule(entries: Sequence[Document], is_egress: bool, port: int) -> Document | None:
    """The first that matches. One that allows only some addresses counts: they may be those of endpoints."""
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
    """`com.amazonaws.eu-west-1.ecr.dkr` -> `ecr.dkr`."""
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
    found = [
        str(entry[key])
        for member, key in pairs
        for entry in permission.get(member, ())
        if entry.get(key)
    ]
    return found + [
        str(pair["GroupId"])
        for pair in permission.get("UserIdGroupPairs", ())
        if pair.get("GroupId")
    ]
