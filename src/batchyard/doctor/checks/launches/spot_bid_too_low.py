"""BY028: the Spot bid of the environment is too low. ``examine_bid`` is used for templates.

Launches that were refused for the price are the best evidence, then the current Spot prices;
where those could not be read, a very low bid is reported as a guess.
"""

from __future__ import annotations

from batchyard.doctor.checks.base import (
    Timing,
    check_each,
    check_facts,
    ec2_environments,
    job_of,
    join_names,
    update_resources_command,
)
from batchyard.doctor.checks.fit.candidates import environment_candidates, select_fitting
from batchyard.doctor.checks.launches import refusals
from batchyard.doctor.facts import Environment, Facts, Missing, MissingFactError, SpotPrice, require
from batchyard.doctor.finding import Finding, Findings, Kind, Severity, Verdict

KIND = Kind("BY028", Severity.ERROR, 78, "Spot prices are below the bid")
#: A bid below this percentage of the On-Demand price rarely buys a GPU.
LOW_BID_PERCENTAGE = 60
#: No region's On-Demand prices are more than this many times those of another region.
_MAX_REGIONAL_FACTOR = 1.75


@check_facts(KIND)
def check(facts: Facts, timing: Timing) -> Verdict:
    spot = [environment for environment in ec2_environments(facts) if environment.is_spot]
    if not spot:
        return None
    return _find_refusals(facts) or check_each(spot, lambda e: _examine_prices(facts, e))


def examine_bid(environment: Environment) -> Findings:
    """Report a very low bid, without knowledge of prices."""
    bid = environment.bid_percentage
    if not environment.is_spot or environment.is_fargate or bid is None:
        return
    if not 0 < bid < LOW_BID_PERCENTAGE:
        return
    yield Finding(
        KIND,
        f"{environment.name} bids so little that it may never get Spot instances; "
        "AWS reports no error",
        (f"bidPercentage {bid}; 100 is the default and the advice",),
        (update_resources_command(environment, "bidPercentage=100"),),
        likelihood=60,
    )


def _find_refusals(facts: Facts) -> list[Finding] | None:
    remedy = ("leave bidPercentage out: then the On-Demand price is the limit",)
    cause = "Spot launches are refused: the bid is too low"
    try:
        return refusals.find_refusals(facts, refusals.PRICE, KIND, cause, remedy)
    except MissingFactError:
        return []  # the prices are evidence, too


def _examine_prices(facts: Facts, environment: Environment) -> list[Finding]:
    bid = environment.bid_percentage
    if bid is None or bid >= 100:
        return []
    try:
        return _compare_prices(facts, environment, bid)
    except MissingFactError:
        findings = list(examine_bid(environment))
        if not findings:
            raise
        return findings


def _compare_prices(facts: Facts, environment: Environment, bid: int) -> list[Finding]:
    """Raises MissingFactError where the prices do not allow a verdict."""
    prices = _relevant_prices(facts, environment)
    if any(p.usd_per_hour <= _bid_usd(p, bid) for p in prices if p.on_demand_usd_per_hour):
        return []
    _require_comparable(prices, bid)
    lowest = min(prices, key=_share_of_on_demand)
    source = f" (by the list of {lowest.elsewhere})" if lowest.elsewhere else ""
    return [
        Finding(
            KIND,
            f"every Spot price is above what {environment.name} bids",
            (
                f"bids {bid} % of On-Demand; the lowest price is "
                f"{100 * _share_of_on_demand(lowest):.0f} % ({lowest.type} in {lowest.zone})",
                f"{lowest.type}: bids ${_bid_usd(lowest, bid):.4f} an hour of the On-Demand price "
                f"${lowest.on_demand_usd_per_hour:.4f}{source}; "
                f"Spot costs ${lowest.usd_per_hour:.4f} now",
            ),
            (update_resources_command(environment, "bidPercentage=100"),),
        )
    ]


def _relevant_prices(facts: Facts, environment: Environment) -> list[SpotPrice]:
    """Return the prices of the types that the job fits on, in the zones of the environment."""
    candidates = environment_candidates(environment, facts)
    job = job_of(facts)
    names = {c.type.name for c in (select_fitting(job, candidates) if job else candidates)}
    subnets = facts.subnets if isinstance(facts.subnets, tuple) else ()
    zones = {subnet.zone for subnet in subnets if subnet.id in environment.subnets}
    return [
        price
        for price in require(facts.spot_prices)
        if price.type in names and (not zones or price.zone in zones)
    ]


def _require_comparable(prices: list[SpotPrice], bid: int) -> None:
    """Raise MissingFactError where an On-Demand price is unknown, or is of another region."""
    unlisted = [price.type for price in prices if not price.on_demand_usd_per_hour]
    if unlisted or not prices:
        which = f"of {join_names(unlisted)} is not" if unlisted else "is"
        raise MissingFactError(
            Missing(
                f"no Spot price can be compared: the On-Demand price {which} in the built-in list"
            )
        )
    region = min(prices, key=_share_of_on_demand).elsewhere
    if region and any(p.usd_per_hour <= _bid_usd(p, bid) * _MAX_REGIONAL_FACTOR for p in prices):
        raise MissingFactError(
            Missing(f"the built-in On-Demand prices are those of {region}, not of this region")
        )


def _share_of_on_demand(price: SpotPrice) -> float:
    return price.usd_per_hour / price.on_demand_usd_per_hour


def _bid_usd(price: SpotPrice, bid: int) -> float:
    return price.on_demand_usd_per_hour * bid / 100
