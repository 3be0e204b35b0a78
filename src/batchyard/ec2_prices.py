"""Prices per hour of EC2 instance types: a dated list in the package, and prices of the user."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from batchyard import ec2_types
from batchyard.errors import InputError

UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars per hour by instance type."""

    usd_h: Mapping[str, float]
    #: the region that they are valid for
    region: str = ""
    #: where they come from, for the foot of a table
    source: str = ""
    #: the day on which they were seen
    date: str = ""
    #: US dollars per hour of parts of a network: `nat_gateway`, `interface_endpoint`, `public_ipv4`
    network_usd_h: Mapping[str, float] = field(default_factory=dict)
    #: where the prices of nodes and network come from
    fixed_source: str = ""
    #: US dollars for a gibibyte of an EBS volume in a month, by type of the volume
    disk_usd_gib_month: Mapping[str, float] = field(default_factory=dict)

    def of(self, instance_type: str | None) -> float | None:
        return self.usd_h.get(instance_type) if instance_type else None


def load_prices(*, spot: bool = False) -> Prices:
    """Return the prices of the list in the package."""
    listed = ec2_types.read_data()["prices"]
    key, kind = ("spot", "spot, which moves all day") if spot else ("on_demand", "on-demand")
    region, date, now = listed["region"], listed["date"], listed["now"]
    network = listed["network"]
    return Prices(
        {name: prices[key] for name, prices in listed["usd_h"].items()},
        region,
        f"EC2 {kind}, {region}, Linux, seen {date}; today's: {now}",
        date,
        network["usd_h"],
        f"{region}; nodes of {date} ({now}), network of {network['date']} ({network['now']})",
        listed["disks"]["usd_gib_month"],
    )


def latest_spot_prices(history: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return type -> zone -> the newest price of a SpotPriceHistory of EC2."""
    prices: dict[str, dict[str, float]] = {}
    for entry in sorted(history, key=_time_of):
        zones = prices.setdefault(entry["InstanceType"], {})
        zones[entry["AvailabilityZone"]] = float(entry["SpotPrice"])
    return prices


def _time_of(entry: Mapping[str, Any]) -> float:
    time = entry.get("Timestamp")
    return time.timestamp() if isinstance(time, datetime) else 0.0


def list_prices(instance_types: Iterable[str]) -> list[str]:
    """Return a line for each instance type, with its listed prices on demand and on spot."""
    on_demand, spot = load_prices(), load_prices(spot=True)
    return [
        f"{name}: {_hourly_text(on_demand.of(name))} on demand,"
        f" {_hourly_text(spot.of(name))} on spot"
        for name in dict.fromkeys(instance_types)
    ]


def _hourly_text(usd_h: float | None) -> str:
    return f"{UNKNOWN} dollars an hour" if usd_h is None else f"${usd_h:g} an hour"


def add_prices(prices: Prices, assignments: Iterable[str]) -> Prices:
    """Return ``prices`` with the user's prices added, each as TYPE=USD per hour.

    Raises InputError if an assignment has another form.
    """
    user_usd_h = dict(map(_parse_assignment, assignments))
    if not user_usd_h:
        return prices
    listing = ", ".join(f"{name} {usd_h:g}" for name, usd_h in user_usd_h.items())
    return replace(
        prices,
        usd_h={**prices.usd_h, **user_usd_h},
        source=f"given: {listing}; others: {prices.source}",
    )


def _parse_assignment(assignment: str) -> tuple[str, float]:
    name, equals, amount = assignment.partition("=")
    try:
        usd_h = float(amount)
    except ValueError:
        usd_h = math.nan
    if not equals or not name or not math.isfinite(usd_h) or usd_h < 0:
        raise InputError(
            f"--price {assignment!r} is not of the form TYPE=DOLLARS",
            hint="for example --price g5.xlarge=1.006",
        )
    return name, usd_h
