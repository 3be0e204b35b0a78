"""Asks for what environments stand in: the network, instance types and where they are offered, Spot's roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchyard.aws.ec2 import Ec2
from batchyard.aws.iam import Iam
from batchyard.doctor import catalogue
from batchyard.doctor.checks.roles.spot_roles import needs_spot_roles
from batchyard.doctor.facts import (
    NOT_GATHERED,
    Endpoint,
    Environment,
    InstanceType,
    Missing,
    Offering,
    Quota,
    SecurityGroup,
    SpotPrice,
    Subnet,
)
from batchyard.doctor.gather import market
from batchyard.doctor.gather import network_shapes as shapes
from batchyard.doctor.gather.asking import Asker
from batchyard.doctor.gather.environments import strangers


@dataclass(frozen=True, slots=True)
class OperationalError:
    """The parts of Facts of the same names."""

    subnets: tuple[Subnet, ...] | Missing = NOT_GATHERED
    endpoints: tuple[Endpoint, ...] | Missing = NOT_GATHERED
    security_groups: tuple[SecurityGroup, ...] | Missing = NOT_GATHERED
    types: tuple[InstanceType, ...] | Missing = NOT_GATHERED
    offerings: tuple[Offering, ...] | Missing = NOT_GATHERED
    quotas: tuple[Quota, ...] | Missing = NOT_GATHERED
    linked_roles: tuple[str, ...] | Missing = NOT_GATHERED
    spot_prices: tuple[SpotPrice, ...] | Missing = NOT_GATHERED


def gathered(
    asker: Asker,
    environments: Sequence[Environment],
    listed: market.PriceList,
    region: str,
    now_ms: int,
) -> tuple[OperationalError, tuple[Mapping[str, Any], ...] | Missing]:
    """And the instances that have not joined, which say since when they are up."""
    managed = [e for e in environments if e.is_managed]
    hosted = [e for e in managed if not e.is_fargate]
    if not managed:
        return OperationalError(), NOT_GATHERED
    groups = list(dict.fromkeys(group for e in managed for group in e.security_groups))
    subnets = _subnets(asker, managed)
    endpoints = _endpoints(asker, subnets, has_fargate=len(hosted) < len(managed))
    security_groups = _security_groups(asker, groups)
    types = _types(asker, hosted)
    offerings = _offerings(asker, hosted, types)
    codes = market.quota_codes(hosted, types)
    limits = market.limits(asker, codes)
    running = market.running(asker, codes) if codes and isinstance(limits, tuple) else NOT_GATHERED
    around = OperationalError(
        subnets,
        endpoints,
        security_groups,
        types,
        offerings,
        market.with_use(limits, running, types),
        spot_prices=market.spot_prices(asker, hosted, types, listed, region, now_ms),
        linked_roles=_linked_roles(asker, hosted),
    )
    return around, market.launched(asker, {one for e in hosted for one in strangers(e)}, running)


# -- the network -------------------------------------------------------------------------------------------------


def _subnets(asker: Asker, environments: Sequence[Environment]) -> tuple[Subnet, ...] | Missing:
    ec2 = Ec2(asker.session)
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
    vpcs = sorted(
        {vpc for route, vpc in routes if not route or (has_fargate and route.startswith("igw-"))}
    )
    if not vpcs:
        return ()
    found = asker.ask("ec2:DescribeVpcEndpoints", lambda: Ec2(asker.session).endpoints(vpcs))
    if isinstance(found, Missing):
        return found
    usable = [
        document for document in found if document.get("State", "available").lower() == "available"
    ]
    return tuple(map(shapes.endpoint_of, usable))


def _security_groups(asker: Asker, ids: Sequence[str]) -> tuple[SecurityGroup, ...] | Missing:
    if not ids:
        return ()
    found = asker.ask("ec2:DescribeSecurityGroups", lambda: Ec2(asker.session).security_groups(ids))
    return found if isinstance(found, Missing) else tuple(map(shapes.group_of, found))


# -- types -------------------------------------------------------------------------------------------------------


def _types(asker: Asker, environments: Sequence[Environment]) -> tuple[InstanceType, ...] | Missing:
    """The catalogue knows most; AWS is asked where a name is not in it."""
    names = list(dict.fromkeys(name for e in environments for name in e.instance_types))
    if all(catalogue.is_known(name) for name in names):
        return NOT_GATHERED
    families = [family for name in names for family in catalogue.WORDS.get(name, (name,))]
    patterns = [name if "." in name else f"{name}.*" for name in dict.fromkeys(families)]
    found = asker.ask(
        "ec2:DescribeInstanceTypes", lambda: Ec2(asker.session).instance_types(patterns)
    )
    if isinstance(found, Missing):
        return found
    return tuple(map(instance_type_of, found))


def instance_type_of(document: Mapping[str, Any]) -> InstanceType:
    """Its GPUs are those that ECS can give to a job: NVIDIA's, and whole ones."""
    name = document["InstanceType"]
    cards = document.get("GpuInfo", {}).get("Gpus", ())
    nvidia = [
        int(card.get("Count", 0))
        for card in cards
        if card.get("Manufacturer", "").upper() == "NVIDIA"
    ]
    is_slice = catalogue.family_of(name) in catalogue.UNSCHEDULABLE
    architectures = document.get("ProcessorInfo", {}).get(
        "SupportedArchitectures", (catalogue.X86,)
    )
    return InstanceType(
        name,
        int(document["VCpuInfo"]["DefaultVCpus"]),
        int(document["MemoryInfo"]["SizeInMiB"]),
        0 if is_slice else sum(nvidia),
        catalogue.ARM if catalogue.ARM in architectures else catalogue.X86,
    )


def _expanded(
    environment: Environment, types: tuple[InstanceType, ...] | Missing
) -> tuple[InstanceType, ...]:
    return catalogue.expand(
        environment.instance_types, None if isinstance(types, Missing) else types
    )


def _offerings(
    asker: Asker, environments: Sequence[Environment], types: tuple[InstanceType, ...] | Missing
) -> tuple[Offering, ...] | Missing:
    names = list(dict.fromkeys(t.name for e in environments for t in _expanded(e, types)))
    if not names:
        return NOT_GATHERED
    found = asker.ask(
        "ec2:DescribeInstanceTypeOfferings", lambda: Ec2(asker.session).offerings(names)
    )
    if isinstance(found, Missing):
        return found
    return tuple(Offering(document["InstanceType"], document["Location"]) for document in found)


# -- roles -------------------------------------------------------------------------------------------------------


def _linked_roles(asker: Asker, environments: Sequence[Environment]) -> tuple[str, ...] | Missing:
    """They are there where Spot instances are."""
    if not any(map(needs_spot_roles, environments)):
        return NOT_GATHERED
    found = asker.ask("iam:ListRoles", Iam(asker.session).service_linked_roles)
    return found if isinstance(found, Missing) else tuple(found)
