"""What AWS sells: quotas with what is in use of them, and Spot prices against the bid. Pure."""

from __future__ import annotations

from collections.abc import Callable

from batchyard.doctor import catalogue
from batchyard.doctor.checks import hardware, launching
from batchyard.doctor.checks.common import (
    Found,
    Setting,
    each,
    hosted,
    is_over,
    job_of,
    named,
    types_of,
    update_resources,
    waiting_job,
)
from batchyard.doctor.checks.fit import Candidate, fitting
from batchyard.doctor.checks.kinds import QUOTA_TOO_SMALL, QUOTA_USED_UP, SPOT_BID_TOO_LOW
from batchyard.doctor.facts import CannotSee, Environment, Facts, Missing, Quota, SpotPrice, known
from batchyard.doctor.finding import Finding

#: no region's On-Demand prices are more than so many times another's
DEAREST = 1.75

Left = Callable[[Quota], float]


def _candidates(facts: Facts, environment: Environment) -> list[Candidate]:
    """The types that would do, smallest first."""
    these = [Candidate(environment, t) for t in types_of(environment, facts)]
    job = job_of(facts)
    return fitting(job, these) if job else these


# -- quotas ------------------------------------------------------------------------------------------------------


def quota(facts: Facts, setting: Setting) -> Found:
    """One instance that would do must be allowed, whatever else runs."""
    if is_over(facts) or not hosted(facts):
        return None

    def look(environment: Environment) -> list[Finding]:
        tight = _without_room(facts, environment, lambda limit: limit.vcpus)
        return [_too_small(*tight)] if tight else []

    return each(hosted(facts), look)


def quota_used(facts: Facts, setting: Setting) -> Found:
    """What runs already leaves room for one more. What the environment itself runs is its work, unless a job waits."""
    if is_over(facts) or setting.is_early or not hosted(facts):
        return None
    job = waiting_job(facts)
    is_stuck = job is not None and job.status == "RUNNABLE"

    def look(environment: Environment) -> list[Finding]:
        if _without_room(facts, environment, lambda limit: limit.vcpus):
            return []  # the quota is too small for it at any time
        own = 0 if is_stuck else environment.desired_vcpus
        tight = _without_room(
            facts, environment, lambda limit: limit.vcpus - max(0.0, _used(limit) - own)
        )
        return [_used_up(*tight)] if tight else []

    return each(hosted(facts), look)


def _without_room(
    facts: Facts, environment: Environment, left: Left
) -> tuple[Candidate, Quota] | None:
    """The smallest type that would do, and its quota, where no quota has room for any of them."""
    quotas = {q.code: q for q in known(facts.quotas)}
    tight: list[tuple[Candidate, Quota]] = []
    unseen: CannotSee | None = None
    for candidate in _candidates(facts, environment):
        code = catalogue.quota_code(candidate.type.name, environment.is_spot)
        try:
            limit = known(quotas.get(code) or _not_read(code, candidate.type.name))
            if left(limit) >= candidate.type.vcpus:
                return None
            tight.append((candidate, limit))
        except CannotSee as exc:
            unseen = exc
    if unseen:
        raise unseen
    return tight[0] if tight else None


def _not_read(code: str, name: str) -> Missing:
    if not code:
        return Missing(f"it is not known which quota {name} counts against")
    return Missing(f"the quota {code} was not read", "servicequotas:GetServiceQuota")


def _used(limit: Quota) -> float:
    used = known(limit.used_vcpus)
    if limit.is_at_least and used < limit.vcpus:
        raise CannotSee(
            Missing("more runs in this account than one page of DescribeInstances lists")
        )
    return used


def _too_small(smallest: Candidate, limit: Quota) -> Finding:
    environment = smallest.environment
    return Finding(
        QUOTA_TOO_SMALL,
        f"the EC2 quota does not allow one {smallest.type.name}, the smallest that would do",
        (f"quota {limit.code} {limit.name}: {limit.vcpus:g} vCPUs; {_needs(smallest)}",),
        (_increase(limit, max(smallest.type.vcpus, environment.max_vcpus)),),
        f"compute environment {environment.name}",
    )


def _used_up(smallest: Candidate, limit: Quota) -> Finding:
    environment = smallest.environment
    used = known(limit.used_vcpus)
    at_least = "at least " if limit.is_at_least else ""
    own = (
        f", {environment.desired_vcpus} of them by {environment.name}"
        if environment.desired_vcpus
        else ""
    )
    wanted = max(limit.vcpus + environment.max_vcpus, used + smallest.type.vcpus)
    return Finding(
        QUOTA_USED_UP,
        f"the EC2 quota is used up: no {smallest.type.name} can be launched until something else ends",
        (
            f"quota {limit.code} {limit.name}: {limit.vcpus:g} vCPUs, {at_least}{used:g} in use{own}; "
            f"{_needs(smallest)}",
        ),
        (
            _increase(limit, wanted),
            "or end what is not needed: aws ec2 describe-instances --filters Name=instance-state-name,Values=running "
            "--query 'Reservations[].Instances[].[InstanceId,InstanceType,LaunchTime]' --output text",
        ),
        f"compute environment {environment.name}",
    )


def _needs(smallest: Candidate) -> str:
    return f"{smallest.type.name} needs {smallest.type.vcpus}"


def _increase(limit: Quota, vcpus: float) -> str:
    return (
        f"aws service-quotas request-service-quota-increase --service-code ec2 --quota-code {limit.code} "
        f"--desired-value {vcpus:g}"
    )


# -- Spot prices -------------------------------------------------------------------------------------------------


def price(facts: Facts, setting: Setting) -> Found:
    """A bid that was refused, is under every price of now, or so low that it may be one day."""
    spot = [] if is_over(facts) else [e for e in hosted(facts) if e.is_spot]
    if not spot:
        return None
    try:
        refused = launching.refused_for_price(facts)
    except CannotSee:
        refused = []  # the prices themselves say it too
    return refused or each(spot, lambda e: _bid_is_low(facts, e))


def _bid_is_low(facts: Facts, environment: Environment) -> list[Finding]:
    if environment.bid_percentage is None or environment.bid_percentage >= 100:
        return []
    try:
        return _under_all_prices(facts, environment, environment.bid_percentage)
    except CannotSee:
        guess = hardware.low_bid(environment)
        if not guess:
            raise
        return guess


def _under_all_prices(facts: Facts, environment: Environment, bid: int) -> list[Finding]:
    prices = _prices(facts, environment)
    unlisted = [p.type for p in prices if not p.on_demand_usd_per_hour]
    if any(p.usd_per_hour <= _limit(p, bid) for p in prices if p.on_demand_usd_per_hour):
        return []
    if unlisted or not prices:
        which = f"of {named(unlisted)} is not" if unlisted else "is"
        raise CannotSee(
            Missing(
                f"no Spot price can be compared: the On-Demand price {which} in the built-in list"
            )
        )
    lowest = min(prices, key=lambda p: p.usd_per_hour / p.on_demand_usd_per_hour)
    if lowest.elsewhere and any(p.usd_per_hour <= _limit(p, bid) * DEAREST for p in prices):
        raise CannotSee(
            Missing(
                f"the built-in On-Demand prices are those of {lowest.elsewhere}, not of this region"
            )
        )
    about = f" (by the list of {lowest.elsewhere})" if lowest.elsewhere else ""
    share = 100 * lowest.usd_per_hour / lowest.on_demand_usd_per_hour
    return [
        Finding(
            SPOT_BID_TOO_LOW,
            f"every Spot price is above what {environment.name} bids",
            (
                f"bids {bid} % of On-Demand; the lowest price is {share:.0f} % ({lowest.type} in {lowest.zone})",
                f"{lowest.type}: bids ${_limit(lowest, bid):.4f} an hour of the On-Demand price "
                f"${lowest.on_demand_usd_per_hour:.4f}{about}; Spot costs ${lowest.usd_per_hour:.4f} now",
            ),
            (update_resources(environment, "bidPercentage=100"),),
            f"compute environment {environment.name}",
        )
    ]


def _limit(price: SpotPrice, bid: int) -> float:
    return price.on_demand_usd_per_hour * bid / 100


def _prices(facts: Facts, environment: Environment) -> list[SpotPrice]:
    """Of the types that would do, in the zones of the environment's subnets."""
    names = {c.type.name for c in _candidates(facts, environment)}
    subnets = facts.subnets if isinstance(facts.subnets, tuple) else ()
    zones = {s.zone for s in subnets if s.id in environment.subnets}
    return [
        p for p in known(facts.spot_prices) if p.type in names and (not zones or p.zone in zones)
    ]
