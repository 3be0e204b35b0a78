"""Prices of the hosts of a run at the times at which they ran.

They are stored with the run: EC2 has the spot prices of 90 days only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from batchyard.aws.session import NoRegionError
from batchyard.cost.bill import PriceChange
from batchyard.cost.market import NO_ANSWER, PastMarket, parse_products
from batchyard.ec2_prices import load_prices
from batchyard.engines.usage import PaidHost, Usage

#: Spot prices of a run that goes on are asked for again after this time.
_FRESH_S = 300.0


@dataclass(frozen=True, slots=True)
class HostPrices:
    #: (type, zone) -> its prices, in the order of time
    spot: Mapping[tuple[str, str], tuple[PriceChange, ...]] = field(default_factory=dict)
    #: type -> price in US dollars per hour
    on_demand: Mapping[str, float] = field(default_factory=dict)
    #: sentences about where the prices come from
    sources: tuple[str, ...] = ()
    #: whether AWS told them; else they come from the dated list
    is_live: bool = False
    #: the time up to which the spot prices are known
    until_s: float = 0.0

    def of_host(self, host: PaidHost) -> tuple[PriceChange, ...]:
        """Return the prices of a host; empty if they are not known."""
        if host.is_spot:
            return self.spot.get((host.type, host.zone), ())
        usd_h = self.on_demand.get(host.type)
        return () if usd_h is None else (PriceChange(0.0, usd_h),)

    def to_json(self) -> dict[str, Any]:
        return {
            "spot": [
                [name, zone, [[change.since_s, change.usd_h] for change in changes]]
                for (name, zone), changes in self.spot.items()
            ],
            "on_demand": dict(self.on_demand),
            "sources": list(self.sources),
            "is_live": self.is_live,
            "until_s": self.until_s,
        }


def from_json(document: Mapping[str, Any]) -> HostPrices:
    if not document:
        return HostPrices()
    return HostPrices(
        {
            (name, zone): tuple(PriceChange(*change) for change in changes)
            for name, zone, changes in document["spot"]
        },
        document["on_demand"],
        tuple(document["sources"]),
        document["is_live"],
        document["until_s"],
    )


def find_host_prices(usage: Usage, market: PastMarket, now_s: float) -> HostPrices:
    """Return the prices of the hosts: the stored ones if they suffice, else those of AWS.

    Where AWS does not answer, prices of the dated list take their place.
    """
    stored = from_json(usage.prices)
    if _suffices(stored, usage, now_s):
        return stored
    try:
        spot = _read_spot(usage, market, now_s)
        on_demand, source, is_live = _read_on_demand(usage, market, stored)
    except NO_ANSWER as exc:
        return stored if stored.is_live else _listed_prices(usage, str(exc), now_s)
    except NoRegionError:
        return stored if stored.is_live else _listed_prices(usage, "no AWS region", now_s)
    until = datetime.fromtimestamp(now_s, UTC)
    sources = [source] if on_demand else []
    if spot:
        history = f"EC2's history, {usage.region}, until {until:%Y-%m-%d %H:%M} UTC"
        sources.insert(0, f"spot prices: {history}")
    return HostPrices(spot, on_demand, tuple(sources), is_live, until_s=now_s)


def _read_on_demand(
    usage: Usage, market: PastMarket, stored: HostPrices
) -> tuple[dict[str, float], str, bool]:
    """Return type -> price, where the prices come from, and whether AWS told them.

    AWS is asked for types that it has not told. Where it does not answer, the list in the package
    takes its place, in its own region; raises the error of AWS in another one.
    """
    prices = dict(stored.on_demand) if stored.is_live else {}
    missing = sorted({host.type for host in usage.hosts if host.type} - prices.keys())
    try:
        for name in missing:
            usd_h = parse_products(market.linux_products(name))
            if usd_h is not None:
                prices[name] = usd_h
    except NO_ANSWER as exc:
        listed = load_prices()
        if listed.region != usage.region:
            raise
        prices |= {name: listed.usd_h[name] for name in missing if name in listed.usd_h}
        return prices, f"on-demand prices: list of {listed.date}, {listed.region} ({exc})", False
    return prices, f"on-demand prices: AWS Price List, {usage.region}", True


def _suffices(stored: HostPrices, usage: Usage, now_s: float) -> bool:
    if not stored.is_live:
        return False
    is_priced = all(
        stored.of_host(host) and host.type in stored.on_demand for host in usage.hosts if host.type
    )
    is_fresh = (
        stored.until_s >= usage.seen_s if usage.is_final else now_s - stored.until_s < _FRESH_S
    )
    return is_priced and is_fresh


def _read_spot(
    usage: Usage, market: PastMarket, now_s: float
) -> dict[tuple[str, str], tuple[PriceChange, ...]]:
    hosts = [host for host in usage.hosts if host.is_spot and host.type]
    if not hosts:
        return {}
    starts_s = [host.launched_s for host in hosts if host.launched_s]
    starts_s += [use.started_s for use in usage.uses]
    start = datetime.fromtimestamp(min(starts_s, default=now_s), UTC)
    types = sorted({host.type for host in hosts})
    history = market.spot_history(types, start, datetime.fromtimestamp(now_s, UTC))
    return read_history(history, {(host.type, host.zone) for host in hosts})


def read_history(
    history: Iterable[Mapping[str, Any]], places: set[tuple[str, str]]
) -> dict[tuple[str, str], tuple[PriceChange, ...]]:
    """Return (type, zone) -> its prices, from a SpotPriceHistory of EC2."""
    changes: dict[tuple[str, str], dict[float, float]] = {}
    for entry in history:
        place = (entry["InstanceType"], entry["AvailabilityZone"])
        if place in places:
            since_s = entry["Timestamp"].timestamp()
            changes.setdefault(place, {})[since_s] = float(entry["SpotPrice"])
    return {
        place: tuple(PriceChange(since_s, usd_h) for since_s, usd_h in sorted(by_time.items()))
        for place, by_time in changes.items()
    }


def _listed_prices(usage: Usage, reason: str, now_s: float) -> HostPrices:
    """Return the prices of the list in the package."""
    on_demand, spot = load_prices(), load_prices(spot=True)
    types = {host.type for host in usage.hosts}
    elsewhere = f", not of {usage.region}" if usage.region != on_demand.region else ""
    source = (
        f"prices: list of {on_demand.date}, {on_demand.region}{elsewhere}, spot of the cheapest"
        f" zone on that day ({reason})"
    )
    return HostPrices(
        {
            (host.type, host.zone): (PriceChange(0.0, spot.usd_h[host.type]),)
            for host in usage.hosts
            if host.type in spot.usd_h
        },
        {name: usd_h for name, usd_h in on_demand.usd_h.items() if name in types},
        (source,),
        until_s=now_s,
    )
