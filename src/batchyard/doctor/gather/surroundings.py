"""Asks for what environments stand in: the network, instance types and where they are offered, quotas, Spot's roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from batchyard.aws.ec2 import Ec2
from batchyard.aws.iam import Iam
from batchyard.aws.quotas import Quotas
from batchyard.doctor import catalogue
from batchyard.doctor.facts import (
    NOT_GATHERED,
    Endpoint,
    Environment,
    InstanceType,
    Missing,
    Offering,
    Quota,
    SecurityGroup,
    Subnet,
)
from batchyard.doctor.gather import network_shapes as shapes
from batchyard.doctor.gather.asking import Asker

#: a queue with more kinds of instances than that has other troubles
_MOST_QUOTAS = 3
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The parts of Facts of the same names."""

    subnets: tuple[Subnet, ...] | Missing = NOT_GATHERED
    endpoints: tuple[Endpoint, ...] | Missing = NOT_GATHERED
    security_groups: tuple[SecurityGroup, ...] | Missing = NOT_GATHERED
    types: tuple[InstanceType, ...] | Missing = NOT_GATHERED
    offerings: tuple[Offering, ...] | Missing = NOT_GATHERED
    quotas: tuple[Quota, ...] | Missing = NOT_GATHERED
    linked_roles: tuple[str, ...] | Missing = NOT_GATHERED


def gathered(asker: Asker, environments: Sequence[Environment]) -> Surroundings:
    managed = [e for e in environments if e.is_managed]
    hosted = [e for e in managed if not e.is_fargate]
    if not managed:
        return Surroundings()
    groups = list(dict.fromkeys(group for e in managed for group in e.security_groups))
    subnets = _subnets(asker, managed)
    types = _types(asker, hosted)
    return Surroundings(
        subnets,
        _endpoints(asker, subnets, has_fargate=len(hosted) < len(managed)),
        _security_groups(asker, groups),
        types,
        _offerings(asker, hosted, types),
        _quotas(asker, hosted, types),
        _linked_roles(asker, hosted),
    )


# -- the network -------------------------------------------------------------------------------------------------


def _subnets(asker: Asker, environments: Sequence[Environment]) -> tuple[Subnet, ...] | Missing:
    ec2 = Ec2(asker.door)
    ids = list(dict.fromkeys(subnet for e in environments for subnet in e.subnets))
    if not ids:
        return ()
    documents = asker.ask("ec2:DescribeSubnets", lambda: ec2.subnets(ids))
    if isinstance(documents, Missing) or not documents:
        return documents if isinstance(documents, Missing) else ()
    vpcs = list(dict.fromkeys(document["VpcId"] for document in documents))
    tables = asker.ask("ec2:DescribeRouteTables", lambda: ec2.route_tables(vpcs))
    acls = asker.ask("ec2:DescribeNetworkAcls", lambda: ec2.network_acls(ids))
    return shapes.subnets_of(documents, tables, acls)


def _endpoints(
    asker: Asker, subnets: tuple[Subnet, ...] | Missing, has_fargate: bool
) -> tuple[Endpoint, ...] | Missing:
    """They matter to a subnet with no other way, and to a Fargate job without an address."""
    if isinstance(subnets, Missing):
        return subnets
    routes = [(s.default_route, s.vpc) for s in subnets if not isinstance(s.default_route, Missing)]
    vpcs = sorted({vpc for route, vpc in routes if not route or (has_fargate and route.startswith("igw-"))})
    if not vpcs:
        return ()
    found = asker.ask("ec2:DescribeVpcEndpoints", lambda: Ec2(asker.door).endpoints(vpcs))
    if isinstance(found, Missing):
        return found
    usable = [document for document in found if document.get("State", "available").lower() == "available"]
    return tuple(map(shapes.endpoint_of, usable))


def _security_groups(asker: Asker, ids: Sequence[str]) -> tuple[SecurityGroup, ...] | Missing:
    if not ids:
        return ()
    found = asker.ask("ec2:DescribeSecurityGroups", lambda: Ec2(asker.door).security_groups(ids))
    return found if isinstance(found, Missing) else tuple(map(shapes.group_of, found))


# -- types -------------------------------------------------------------------------------------------------------


def _types(asker: Asker, environments: Sequence[Environment]) -> tuple[InstanceType, ...] | Missing:
    """The catalogue knows most; AWS is asked where a name is not in it."""
    names = list(dict.fromkeys(name for e in environments for name in e.instance_types))
    if all(catalogue.is_known(name) for name in names):
        return NOT_GATHERED
    families = [family for name in names for family in catalogue.WORDS.get(name, (name,))]
    patterns = [name if "." in name else f"{name}.*" for name in dict.fromkeys(families)]
    found = asker.ask("ec2:DescribeInstanceTypes", lambda: Ec2(asker.door).instance_types(patterns))
    if isinstance(found, Missing):
        return found
    return tuple(map(instance_type_of, found))


def instance_type_of(document: Mapping[str, Any]) -> InstanceType:
    """Its GPUs are those that ECS can give to a job: NVIDIA's, and whole ones."""
    name = document["InstanceType"]
    cards = document.get("GpuInfo", {}).get("Gpus", ())
    nvidia = [int(card.get("Count", 0)) for card in cards if card.get("Manufacturer", "").upper() == "NVIDIA"]
    is_slice = catalogue.family_of(name) in catalogue.UNSCHEDULABLE
    architectures = document.get("ProcessorInfo", {}).get("SupportedArchitectures", (catalogue.X86,))
    return InstanceType(
        name,
        int(document["VCpuInfo"]["DefaultVCpus"]),
        int(document["MemoryInfo"]["SizeInMiB"]),
        0 if is_slice else sum(nvidia),
        catalogue.ARM if catalogue.ARM in architectures else catalogue.X86,
    )


def _expanded(environment: Environment, types: tuple[InstanceType, ...] | Missing) -> tuple[InstanceType, ...]:
    return catalogue.expand(environment.instance_types, None if isinstance(types, Missing) else types)


def _offerings(
    asker: Asker, environments: Sequence[Environment], types: tuple[InstanceType, ...] | Missing
) -> tuple[Offering, ...] | Missing:
    names = list(dict.fromkeys(t.name for e in environments for t in _expanded(e, types)))
    if not names:
        return NOT_GATHERED
    found = asker.ask("ec2:DescribeInstanceTypeOfferings", lambda: Ec2(asker.door).offerings(names))
    if isinstance(found, Missing):
        return found
    return tuple(Offering(document["InstanceType"], document["Location"]) for document in found)


# -- quotas and roles --------------------------------------------------------------------------------------------


def _quotas(
    asker: Asker, environments: Sequence[Environment], types: tuple[InstanceType, ...] | Missing
) -> tuple[Quota, ...] | Missing:
    codes = [catalogue.quota_code(t.name, e.is_spot) for e in environments for t in _expanded(e, types)]
    found: list[Quota] = []
    missing: Missing = NOT_GATHERED
    for code in list(dict.fromkeys(codes))[:_MOST_QUOTAS]:
        document = asker.ask("servicequotas:GetServiceQuota", partial(Quotas(asker.door).ec2, code))
        if isinstance(document, Missing):
            missing = document
        else:
            found.append(Quota(code, float(document["Value"]), document.get("QuotaName", "")))
    return tuple(found) or missing


def _linked_roles(asker: Asker, environments: Sequence[Environment]) -> tuple[str, ...] | Missing:
    if not any(e.is_spot for e in environments):
        return NOT_GATHERED
    found = asker.ask("iam:ListRoles", Iam(asker.door).service_linked_roles)
    return found if isinstance(found, Missing) else tuple(found)
