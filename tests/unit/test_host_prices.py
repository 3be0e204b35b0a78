"""Prices of the hosts of a run: asked for, stored, and taken from the list where AWS is silent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from batchyard.cost.bill import PriceChange
from batchyard.cost.host_prices import HostPrices, find_host_prices, from_json
from batchyard.engines.usage import PaidHost, Usage
from batchyard.errors import OperationalError

SPOT = PaidHost("i-1", "m5.xlarge", "us-east-1a", True, 1000.0)
STEADY = PaidHost("i-2", "c5.4xlarge", "us-east-1b", False, 1000.0)


class Market:
    def __init__(self, *silent: str, region: str = "us-east-1") -> None:
        self.region = region
        self.silent = silent
        self.asked: list[str] = []

    def spot_prices(self, types: Sequence[str], at_time: datetime) -> list[Any]:
        raise AssertionError("the history has all")

    def spot_history(self, types: Sequence[str], start: datetime, end: datetime) -> list[Any]:
        self._ask("spot")
        assert start.timestamp() == 1000 and list(types) == ["m5.xlarge"]
        return [
            {
                "InstanceType": "m5.xlarge",
                "AvailabilityZone": f"us-east-1{zone}",
                "Timestamp": datetime.fromtimestamp(since_s, UTC),
                "SpotPrice": price,
            }
            for zone, since_s, price in (("a", 1500, "0.2"), ("a", 500, "0.1"), ("b", 500, "9"))
        ]

    def linux_products(self, instance_type: str) -> list[str]:
        self._ask(instance_type)
        dimension = {"unit": "Hrs", "pricePerUnit": {"USD": "0.5"}}
        return [json.dumps({"terms": {"OnDemand": {"x": {"priceDimensions": {"y": dimension}}}}})]

    def _ask(self, call: str) -> None:
        self.asked.append(call)
        if call in self.silent:
            raise OperationalError("no answer")


def usage(*hosts: PaidHost, prices: HostPrices | None = None, is_final: bool = False) -> Usage:
    stored = prices.to_json() if prices else {}
    return Usage("us-east-1", hosts, seen_s=2000.0, is_final=is_final, prices=stored)


def test_prices_of_aws_are_stored_and_not_asked_for_again() -> None:
    market = Market()
    prices = find_host_prices(usage(SPOT, STEADY), market, 2000.0)
    assert prices.of_host(SPOT) == (PriceChange(500.0, 0.1), PriceChange(1500.0, 0.2))
    assert prices.of_host(STEADY) == (PriceChange(0.0, 0.5),) and prices.is_live
    assert from_json(json.loads(json.dumps(prices.to_json()))) == prices
    # While the run goes on, spot prices are asked for again after some minutes.
    market.asked.clear()
    stored = usage(SPOT, STEADY, prices=prices)
    assert find_host_prices(stored, market, 2100.0) == prices and not market.asked
    later = find_host_prices(stored, market, 2400.0)
    assert market.asked == ["spot"] and later.sources[1] == prices.sources[1]
    # When nothing can change any more, they are never asked for again.
    final = usage(SPOT, STEADY, prices=prices, is_final=True)
    assert find_host_prices(final, Market("spot", "m5.xlarge"), 9e9) == prices


def test_without_an_answer_the_list_counts_and_aws_is_asked_again_later() -> None:
    silent = Market("spot")
    listed = find_host_prices(usage(SPOT, STEADY), silent, 2000.0)
    assert listed.of_host(SPOT) == (PriceChange(0.0, 0.0649),) and not listed.is_live
    assert listed.of_host(STEADY) == (PriceChange(0.0, 0.68),) and "no answer" in listed.sources[0]
    stored = usage(SPOT, STEADY, prices=listed, is_final=True)
    assert find_host_prices(stored, Market(), 9000.0).is_live


def test_prices_of_the_list_are_never_called_those_of_aws() -> None:
    market = Market("c5.4xlarge")
    first = find_host_prices(usage(STEADY), market, 2000.0)
    again = find_host_prices(usage(STEADY, prices=first, is_final=True), market, 3000.0)
    for prices in (first, again):
        assert not prices.is_live and prices.on_demand == {"c5.4xlarge": 0.68}
        assert prices.sources == ("on-demand prices: list of 2026-08-22, us-east-1 (no answer)",)


def test_a_host_without_a_price_has_none() -> None:
    assert HostPrices().of_host(SPOT) == () == HostPrices().of_host(STEADY)
