"""Gather what compute environments share: network, instance types, quotas and Spot roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchyard import ec2_types
from batchyard.aws.ec2 import Ec2
from batchyard.aws.iam import Iam
from batchyard.doctor.checks.roles.spot_roles import needs_spot_roles
from batchyard.doctor.facts import (
    NOT_GATHERED,
    Endpoint,
    Environment,
    Missing,
    Offering,
    Quota,
    SecurityGroup,
    SpotPrice,
    Subnet,
)
from batchyard.doctor.gather import market
from batchyard.doctor.gather import network_shapes as shapes
from batchyard.doctor.gather.aws_calls import AwsCalls
from batchyard.doctor.gather.environments import find_unjoined
from batchyard.ec2_prices import Prices
from batchyard.ec2_types import InstanceType


@dataclass(frozen=True, slots=True)
class SharedFacts:
    """The parts of Facts with the same names."""

    subnets: tuple[Subnet, ...] | Missing = NOT_GATHERED
    endpoints: tuple[Endpoint, ...] | Missing = NOT_GATHERED
    security_groups: tuple[SecurityGroup, ...] | Missing = NOT_GATHERED
    types: tuple[InstanceType, ...] | Missing = NOT_GATHERED
    offerings: tuple[Offering, ...] | Missing = NOT_GATHERED
    quotas: tuple[Quota, ...] | Missing = NOT_GATHERED
    linked_roles: tuple[str, ...] | Missing = NOT_GATHERED
    spot_prices: tuple[SpotPrice, ...] | Missing = NOT_GATHERED


def gather(
    calls: AwsCalls,
    environments: Sequence[Environment],
    prices: Prices,
    region: str,
    now_ms: int,
) -> tuple[SharedFacts, tuple[Mapping[str, Any], ...] | Missing]:
    """Return the facts, and the instances that have not joined a cluster, with launch times."""
    managed = [environment for environment in environments if environment.is_managed]
    on_ec2 = [environment for environment in managed if not environment.is_fargate]
    if not managed:
        return SharedFacts(), NOT_GATHERED
    subnets = _describe_subnets(calls, managed)
    endpoints = _describe_endpoints(calls, subnets, has_fargate=len(on_ec2) < len(managed))
    security_groups = _describe_security_groups(calls, managed)
    types = _describe_types(calls, on_ec2)
    offerings = _describe_offerings(calls, on_ec2, types)
    codes = market.quota_codes(on_ec2, types)
    quotas = market.read_quotas(calls, codes)
    running: market.Running | Missing = NOT_GATHERED
    if codes and isinstance(quotas, tuple):
        running = market.find_running(calls, codes)
    shared = SharedFacts(
        subnets,
        endpoints,
        security_groups,
        types,
        offerings,
        market.add_use(quotas, running, types),
        spot_prices=market.read_spot_prices(calls, on_ec2, types, prices, region, now_ms),
        linked_roles=_list_linked_roles(calls, on_ec2),
    )
    unjoined = {instance for environment in on_ec2 for instance in find_unjoined(environment)}
    return shared, market.find_instances(calls, unjoined, running)


# -- the network ---------------------------------------------------------------------------------


def _describe_subnets(
    calls: AwsCalls, environments: Sequence[Environment]
) -> tuple[Subnet, ...] | Missing:
    ec2 = Ec2(calls.session)
    ids = list(
        dict.fromkeys(subnet for environment in environments for subnet in environment.subnets)
    )
    if not ids:
        return ()
    documents = calls.call("ec2:DescribeSubnets", lambda: ec2.subnets(ids))
    if isinstance(documents, Missing):
        return documents
    if not documents:
        return ()
    vpcs = list(dict.fromkeys(document["VpcId"] for document in documents))
    tables = calls.call("ec2:DescribeRouteTables", lambda: ec2.route_tables(vpcs))
    acls = calls.call("ec2:DescribeNetworkAcls", lambda: ec2.network_acls(ids))
    return shapes.subnets_of(documents, tables, acls)


def _describe_endpoints(
    calls: AwsCalls, subnets: tuple[Subnet, ...] | Missing, has_fargate: bool
) -> tuple[Endpoint, ...] | Missing:
    """Return the VPC endpoints, if a subnet has no other route or Fargate needs them."""
    if isinstance(subnets, Missing):
        return subnets
    vpcs = sorted({subnet.vpc for subnet in subnets if _needs_endpoints(subnet, has_fargate)})
    if not vpcs:
        return ()
    ec2 = Ec2(calls.session)
    documents = calls.call("ec2:DescribeVpcEndpoints", lambda: ec2.endpoints(vpcs))
    if isinstance(documents, Missing):
        return documents
    available = (
        document
        for document in documents
        if document.get("State", "available").lower() == "available"
    )
    return tuple(map(shapes.endpoint_of, available))


def _needs_endpoints(subnet: Subnet, has_fargate: bool) -> bool:
    """Return whether endpoints matter: no default route, or Fargate without a public address."""
    route = subnet.default_route
    if isinstance(route, Missing):
        return False
    return not route or (has_fargate and route.startswith("igw-"))


def _describe_security_groups(
    calls: AwsCalls, environments: Sequence[Environment]
) -> tuple[SecurityGroup, ...] | Missing:
    groups = (group for environment in environments for group in environment.security_groups)
    ids = list(dict.fromkeys(groups))
    if not ids:
        return ()
    ec2 = Ec2(calls.session)
    documents = calls.call("ec2:DescribeSecurityGroups", lambda: ec2.security_groups(ids))
    return documents if isinstance(documents, Missing) else tuple(map(shapes.group_of, documents))


# -- types ---------------------------------------------------------------------------------------


def _describe_types(
    calls: AwsCalls, environments: Sequence[Environment]
) -> tuple[InstanceType, ...] | Missing:
    """Return the instance types, if one of them is not in the ec2_types."""
    types = (name for environment in environments for name in environment.instance_types)
    names = list(dict.fromkeys(types))
    if all(ec2_types.is_known(name) for name in names):
        return NOT_GATHERED
    families = [family for name in names for family in ec2_types.WORDS.get(name, (name,))]
    patterns = [name if "." in name else f"{name}.*" for name in dict.fromkeys(families)]
    ec2 = Ec2(calls.session)
    documents = calls.call("ec2:DescribeInstanceTypes", lambda: ec2.instance_types(patterns))
    return documents if isinstance(documents, Missing) else tuple(map(instance_type_of, documents))


def instance_type_of(document: Mapping[str, Any]) -> InstanceType:
    """Return the instance type, with the GPUs that ECS can assign: whole ones of NVIDIA."""
    name = document["InstanceType"]
    cards = document.get("GpuInfo", {}).get("Gpus", ())
    nvidia = [
        int(card.get("Count", 0))
        for card in cards
        if card.get("Manufacturer", "").upper() == "NVIDIA"
    ]
    is_slice = ec2_types.family_of(name) in ec2_types.UNSCHEDULABLE
    architectures = document.get("ProcessorInfo", {}).get(
        "SupportedArchitectures", (ec2_types.X86,)
    )
    return InstanceType(
        name,
        int(document["VCpuInfo"]["DefaultVCpus"]),
        int(document["MemoryInfo"]["SizeInMiB"]),
        0 if is_slice else sum(nvidia),
        ec2_types.ARM if ec2_types.ARM in architectures else ec2_types.X86,
    )


def _describe_offerings(
    calls: AwsCalls, environments: Sequence[Environment], types: tuple[InstanceType, ...] | Missing
) -> tuple[Offering, ...] | Missing:
    names = market.type_names(environments, types)
    if not names:
        return NOT_GATHERED
    ec2 = Ec2(calls.session)
    documents = calls.call("ec2:DescribeInstanceTypeOfferings", lambda: ec2.offerings(names))
    if isinstance(documents, Missing):
        return documents
    return tuple(Offering(document["InstanceType"], document["Location"]) for document in documents)


# -- roles ---------------------------------------------------------------------------------------


def _list_linked_roles(
    calls: AwsCalls, environments: Sequence[Environment]
) -> tuple[str, ...] | Missing:
    """Return the service-linked roles, if an environment uses Spot."""
    if not any(map(needs_spot_roles, environments)):
        return NOT_GATHERED
    roles = calls.call("iam:ListRoles", Iam(calls.session).service_linked_roles)
    return roles if isinstance(roles, Missing) else tuple(roles)
