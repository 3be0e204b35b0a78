"""What an environment costs per month while no job runs, from the dated list of prices. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from batchyard import ec2_types as types
from batchyard.ec2_prices import Prices
from batchyard.infra.instance_choices import Values, list_types
from batchyard.units import pluralize

HOURS_PER_MONTH = 730
#: Interface endpoints that `Placement=endpoints` makes in each zone.
INTERFACE_ENDPOINTS = ("ecs", "ecs-agent", "ecs-telemetry", "ecr.api", "ecr.dkr", "logs", "batch")


@dataclass(frozen=True, slots=True)
class FixedCost:
    what: str
    #: None if the list has no price for it.
    usd_month: float | None
    #: True if AWS may choose something that costs more.
    is_at_least: bool = False


def list_fixed_costs(values: Values, prices: Prices) -> list[FixedCost]:
    """Return what is paid for by the hour with these values of the parameters."""
    return [
        *_network_costs(values.get("network", {}), prices),
        *_minimum_vcpu_costs(values.get("batch", {}), prices),
        *_node_costs(values.get("batch-unmanaged", {}), "MinNodes", prices),
        *_node_costs(values.get("spotfleet", {}), "Nodes", prices),
        *_node_costs(values.get("ecs", {}), "ServiceTasks", prices),
    ]


def _network_costs(values: Mapping[str, str], prices: Prices) -> Iterator[FixedCost]:
    if values.get("ExistingVpc"):
        return
    if values.get("Placement") == "private":
        usd_h = prices.network_usd_h["nat_gateway"] + prices.network_usd_h["public_ipv4"]
        yield FixedCost("NAT gateway with its address", usd_h * HOURS_PER_MONTH)
    if values.get("Placement") == "endpoints":
        zones, per_zone = int(values["Zones"]), len(INTERFACE_ENDPOINTS)
        usd_h = prices.network_usd_h["interface_endpoint"] * per_zone * zones
        yield FixedCost(f"{per_zone} VPC endpoints in {zones} zones", usd_h * HOURS_PER_MONTH)


def _minimum_vcpu_costs(values: Mapping[str, str], prices: Prices) -> Iterator[FixedCost]:
    for device in ("Cpu", "Gpu"):
        vcpus = int(float(values.get(f"{device}MinvCpus", "0")))
        if vcpus:
            rates = [
                usd_h / node.vcpus
                for node in types.expand(list_types(values[f"{device}InstanceTypes"]))
                if (usd_h := prices.of(node.name)) is not None
            ]
            yield FixedCost(
                f"{vcpus} vCPUs of {device}MinvCpus, on-demand",
                min(rates) * vcpus * HOURS_PER_MONTH if rates else None,
                is_at_least=True,
            )


def _node_costs(values: Mapping[str, str], parameter: str, prices: Prices) -> Iterator[FixedCost]:
    count = int(float(values.get(parameter, "0")))
    if not count:
        return
    known_usd_hours = [
        usd_h
        for name in list_types(values["InstanceTypes"])
        if (usd_h := prices.of(name)) is not None
    ]
    yield FixedCost(
        f"{pluralize(count, 'node')} of {parameter}, at the on-demand price",
        min(known_usd_hours) * count * HOURS_PER_MONTH if known_usd_hours else None,
        is_at_least=True,
    )


def describe_fixed_costs(costs: list[FixedCost], source: str) -> list[str]:
    """Return lines about the costs, with the date and region of the prices."""
    if not costs:
        return ["fixed cost: none by the hour while no job runs; stored data costs per gigabyte"]
    known_usd_month = sum(cost.usd_month or 0.0 for cost in costs)
    is_at_least = any(cost.is_at_least or cost.usd_month is None for cost in costs)
    lines = [f"fixed cost: {'at least ' if is_at_least else ''}${known_usd_month:,.2f} a month"]
    for cost in costs:
        amount = "price not in the list" if cost.usd_month is None else f"${cost.usd_month:,.2f}"
        prefix = "at least " if cost.is_at_least and cost.usd_month is not None else ""
        lines.append(f"  {cost.what}: {prefix}{amount}")
    return [*lines, f"  prices: {source}"]
