"""What an hour of an instance costs: a list with its date, and what the user says. Reads its own list alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources

from batchyard.errors import InputError

UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars an hour by instance type."""

    usd_h: Mapping[str, float]
    #: GPUs of a type, where the list knows it
    gpus: Mapping[str, int]
    #: where the numbers are from, for the foot of a table
    source: str

    def of(self, instance_type: str | None) -> float | None:
        return self.usd_h.get(instance_type) if instance_type else None


def listed(*, spot: bool = False) -> Prices:
    text = resources.files("batchyard.bench").joinpath("prices.json").read_text(encoding="utf-8")
    value = json.loads(text)
    key, kind = (
        ("spot_usd_h", "spot, which moves all day") if spot else ("on_demand_usd_h", "on-demand")
    )
    return Prices(
        {name: one[key] for name, one in value["types"].items()},
        {name: one["gpus"] for name, one in value["types"].items()},
        f"EC2 {kind}, {value['region']}, Linux, seen {value['date']}; today's: {value['now']}",
    )


def with_own(prices: Prices, given: Iterable[str]) -> Prices:
    """``given``: TYPE=USD an hour, as on the command line; they win over the list."""
    own: dict[str, float] = {}
    for one in given:
        name, equals, amount = one.partition("=")
        try:
            usd_h = float(amount)
        except ValueError:
            usd_h = math.nan
        if not equals or not name or not math.isfinite(usd_h) or usd_h < 0:
            raise InputError(
                f"--price {one!r} is not of the form TYPE=DOLLARS",
                hint="for example --price g5.xlarge=1.006",
            )
        own[name] = usd_h
    if not own:
        return prices
    said = ", ".join(f"{name} {usd_h:g}" for name, usd_h in own.items())
    return Prices({**prices.usd_h, **own}, prices.gpus, f"given: {said}; others: {prices.source}")
