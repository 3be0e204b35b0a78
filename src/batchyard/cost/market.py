"""Prices of instance types: from AWS where it answers, else from the dated list in the package.

Every answer says where its prices come from. Only mistakes of the user, such as the name of a
profile that does not exist, are errors.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.parse import urlsplit

from batchyard.aws.ec2 import MAX_SPOT_TYPES, Ec2
from batchyard.aws.pricing import ENDPOINT_REGION, PriceList
from batchyard.aws.session import AwsRefusedError, AwsSession, NoRegionError
from batchyard.batch.jobs import Resources
from batchyard.cost.offers import CHEAPEST_ZONE, Offer, select_types, sort_offers
from batchyard.ec2_prices import latest_spot_prices, load_prices
from batchyard.ec2_types import X86, InstanceType
from batchyard.errors import OperationalError

#: AWS did not answer, or refused. Then the dated list counts.
NO_ANSWER = (OperationalError, AwsRefusedError)
#: Prices are no reason to wait long.
_TIMEOUT_S = 5
_MAX_ATTEMPTS = 3
#: The Price List has one price in each answer; it throttles at about ten calls a second.
_CALLS_AT_ONCE = 4
_MAX_NAMES = 5
#: How the names of AWS's servers end.
_AWS_HOSTS = (".amazonaws.com", ".amazonaws.com.cn", ".amazonaws.eu", ".api.aws")
#: Prices that are shown unless the user asks for more.
DEFAULT_LIMIT = 20


class Market(Protocol):
    """Where prices are asked for. The methods raise OperationalError or AwsRefusedError."""

    @property
    def region(self) -> str:
        """Return the region of the prices. Raises NoRegionError if none is configured."""

    def spot_prices(self, types: Sequence[str], at_time: datetime) -> list[Any]:
        """Return a SpotPriceHistory of EC2, for at most MAX_SPOT_TYPES types."""

    def linux_products(self, instance_type: str) -> list[str]:
        """Return the products of a type in the Price List, each as JSON."""


class PastMarket(Market, Protocol):
    """A market that also knows the spot prices of the last 90 days."""

    def spot_history(self, types: Sequence[str], start: datetime, end: datetime) -> list[Any]:
        """Return a SpotPriceHistory of EC2: changes, and the prices that were valid at first."""


class AwsMarket:
    """The prices of one region, for one profile; None for those of the AWS configuration."""

    def __init__(self, region: str | None = None, profile: str | None = None) -> None:
        self._session, price_session = (
            AwsSession(name, profile, timeout_s=_TIMEOUT_S, max_attempts=_MAX_ATTEMPTS)
            for name in (region, ENDPOINT_REGION)
        )
        self._ec2 = Ec2(self._session)
        self._price_session = price_session
        self._price_list = PriceList(price_session)

    @property
    def region(self) -> str:
        return str(self._session.client("ec2").meta.region_name)

    def spot_prices(self, types: Sequence[str], at_time: datetime) -> list[Any]:
        _require_aws(self._session.client("ec2"))
        return self._ec2.spot_prices(types, at_time)

    def spot_history(self, types: Sequence[str], start: datetime, end: datetime) -> list[Any]:
        _require_aws(self._session.client("ec2"))
        return list(self._ec2.spot_price_history(types, start, end))

    def linux_products(self, instance_type: str) -> list[str]:
        _require_aws(self._price_session.client("pricing"))
        return self._price_list.linux_products(instance_type, self.region)


def _require_aws(client: Any) -> None:
    """Raise OperationalError if another server stands in for AWS: its prices are invented."""
    address = str(client.meta.endpoint_url)
    if not (urlsplit(address).hostname or "").endswith(_AWS_HOSTS):
        raise OperationalError(
            f"{address} is not AWS, and its prices are not AWS's",
            hint="unset AWS_ENDPOINT_URL for today's prices",
        )


@dataclass(frozen=True, slots=True)
class Offers:
    """Instance types with prices, cheapest first."""

    offers: tuple[Offer, ...]
    #: the region of the prices
    region: str
    #: types with a price that ``offers`` leaves out
    left_out: int
    #: sentences about where the prices come from
    sources: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "region": self.region,
            "sources": list(self.sources),
            "left_out": self.left_out,
            "offers": [offer.to_json() for offer in self.offers],
        }


def price_types(
    needed: Resources,
    market: Market,
    *,
    architecture: str = X86,
    limit: int | None = DEFAULT_LIMIT,
    gpu_memory_mib: int = 0,
) -> Offers:
    """Return the cheapest types that can run a child with these resources, at today's prices.

    ``gpu_memory_mib``: memory that each GPU has at least.
    Raises InputError if no type is large enough, and OperationalError if none of them has a known
    price.
    """
    types = select_types(needed, architecture, gpu_memory_mib)
    offers = find_offers(types, market, datetime.now(UTC), limit)
    if not offers.offers:
        names = ", ".join(listed.name for listed in types[:_MAX_NAMES])
        raise OperationalError(
            f"no price is known for the instance types that fit ({names} ...): {offers.sources[0]}",
            hint="name another region with --region, or log in to AWS",
        )
    return offers


def check_settings(market: Market) -> None:
    """Raise InputError if the AWS configuration is wrong, for example for an unknown profile."""
    with suppress(*NO_ANSWER, NoRegionError):
        _ = market.region


def find_offers(
    types: Sequence[InstanceType], market: Market, now: datetime, limit: int | None = DEFAULT_LIMIT
) -> Offers:
    """Return the cheapest of the types with their prices; ``limit`` of them, or all for None.

    On-demand prices are asked for one by one, so only for the types that are returned.
    """
    region = ""
    try:
        region = market.region
        spot_usd_h = _read_spot_prices(types, market, now)
    except NO_ANSWER as exc:
        return _list_offers(types, region, str(exc), limit)
    except NoRegionError:
        return _list_offers(types, region, "no AWS region is configured", limit)
    on_spot = sort_offers(Offer(listed, None, spot_usd_h.get(listed.name, {})) for listed in types)
    # Types without a spot price, smallest first: there are some in every region.
    others = [Offer(listed, None, {}) for listed in types if listed.name not in spot_usd_h]
    candidates = [*on_spot[:limit], *others[:limit]]
    on_demand_usd_h, source = _read_on_demand_prices([o.type.name for o in candidates], market)
    offers = sort_offers(
        replace(o, on_demand_usd_h=on_demand_usd_h.get(o.type.name)) for o in candidates
    )
    spot_source = f"spot prices: AWS, {region}, {now:%Y-%m-%d %H:%M} UTC"
    shown_offers = tuple(offers[:limit])
    left_out = len(on_spot) - len(on_spot[:limit]) + len(offers) - len(shown_offers)
    return Offers(shown_offers, region, left_out, (spot_source, source))


def _list_offers(
    types: Sequence[InstanceType], region: str, reason: str, limit: int | None
) -> Offers:
    """Return the offers of the list in the package. ``region``: the one that was asked about."""
    on_demand, spot = load_prices(), load_prices(spot=True)
    offers = sort_offers(
        Offer(
            listed,
            on_demand.of(listed.name),
            {CHEAPEST_ZONE: spot.usd_h[listed.name]} if listed.name in spot.usd_h else {},
        )
        for listed in types
    )
    elsewhere = f", not of {region}" if region and region != on_demand.region else ""
    source = (
        f"prices: list of {on_demand.date}, {on_demand.region}{elsewhere}, spot of the cheapest"
        f" zone on that day ({reason})"
    )
    shown_offers = tuple(offers[:limit])
    return Offers(shown_offers, on_demand.region, len(offers) - len(shown_offers), (source,))


def _read_spot_prices(
    types: Sequence[InstanceType], market: Market, now: datetime
) -> dict[str, dict[str, float]]:
    names = [listed.name for listed in types]
    history: list[Any] = []
    for start in range(0, len(names), MAX_SPOT_TYPES):
        history += market.spot_prices(names[start : start + MAX_SPOT_TYPES], now)
    return latest_spot_prices(history)


def _read_on_demand_prices(
    names: Sequence[str], market: Market
) -> tuple[Mapping[str, float | None], str]:
    """Return the prices by type, and a sentence about where they come from."""
    try:
        # The first call alone, since it makes the client and finds out whether AWS answers.
        products = [market.linux_products(name) for name in names[:1]]
        with ThreadPoolExecutor(_CALLS_AT_ONCE) as pool:
            products += pool.map(market.linux_products, names[1:])
    except NO_ANSWER as exc:
        listed = load_prices()
        if listed.region != market.region:
            return {}, f"on-demand prices: none for {market.region} ({exc})"
        source = f"on-demand prices: list of {listed.date}, {listed.region} ({exc})"
        return listed.usd_h, source
    prices = {name: parse_products(texts) for name, texts in zip(names, products, strict=True)}
    return prices, f"on-demand prices: AWS Price List, {market.region}"


def parse_products(texts: Iterable[str]) -> float | None:
    """Return the on-demand price in products of the Price List, in US dollars per hour.

    None if there is none. Other terms, such as those of reservations, do not count.
    """
    prices = [
        float(dimension["pricePerUnit"]["USD"])
        for text in texts
        for term in json.loads(text).get("terms", {}).get("OnDemand", {}).values()
        for dimension in term["priceDimensions"].values()
        if dimension.get("unit") == "Hrs" and "USD" in dimension["pricePerUnit"]
    ]
    return max(prices, default=0.0) or None
