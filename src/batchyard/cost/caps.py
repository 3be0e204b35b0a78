"""The cap of a new run: refused if even the low estimate is above it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from batchyard import cost_cap, ec2_types
from batchyard.cost import market
from batchyard.cost.bill import MIN_BILLED_S
from batchyard.cost.estimate import children_per_instance
from batchyard.cost.offers import StepOffers
from batchyard.cost.plan_cost import CapFit, cost_of_prepared, make_finder
from batchyard.cost.run_bill import RunBill
from batchyard.cost_cap import Cap, CapAction
from batchyard.engines.base import FARGATE_CHOICE, PreparedRun
from batchyard.errors import InputError
from batchyard.plan import Plan, PlannedJob

_HOUR_S = 3600


def make_cap(
    prepared: PreparedRun,
    home: Path,
    engine: str,
    usd: float,
    *,
    stops: bool = False,
    prices: market.Market | None = None,
) -> Cap:
    """Return the cap of a run that its engine has prepared.

    Raises InputError if even the low estimate of the run is above ``usd``, or if no price is known,
    and OperationalError if AWS does not answer.
    """
    environment = prepared.environment
    if environment is None:
        raise InputError("a run that costs nothing has no cap", hint="leave max_cost out")
    prices = prices or market.AwsMarket(environment.region, environment.profile)
    estimate = cost_of_prepared(prepared, home, engine, prices, asks_runs=False, max_cost_usd=usd)
    if estimate is not None and estimate.cap_fit is CapFit.TOO_LOW:
        raise InputError(
            f"max_cost is ${usd:g}, and the run is likely to cost ${estimate.low_usd:.2f} or more",
            hint="allow more with --max-cost, or run less of it: --only, --from",
        )
    hosts = prepared.hosts
    unknown = [
        job.step
        for job in prepared.plan.jobs
        if not hosts.get(job.step) or FARGATE_CHOICE in hosts[job.step]
    ]
    if unknown:
        raise InputError(
            f"max_cost: the hosts of {', '.join(unknown)} and their prices are not known",
            hint="a cap needs EC2 hosts of known types: those of a queue that AWS Batch manages, "
            "of an Auto Scaling group, or hosts that a cluster has now; leave max_cost out",
        )
    cap = find_rates(Cap(usd, stops), prepared.plan, make_finder(prices, prepared.hosts))
    if cost_cap.decide(cap, 0.0).action in (CapAction.HOLD, CapAction.STOP):
        raise InputError(
            f"max_cost is ${usd:g}, and with all its children at once the run may cost "
            f"${cap.rate_usd_h:.2f} an hour: the cap would be reached in the first minute, so that "
            "nothing could start",
            hint="allow more with --max-cost, or let fewer children run at once: `max_running`",
        )
    return cap


def count_for_cap(bill: RunBill, cap: Cap) -> float:
    """Return what counts for the cap of a run: hosts, addresses and disks.

    A host without a known price counts like the dearest one that the run may start.
    """
    unpriced_s = sum(
        max(MIN_BILLED_S, host.until_s - host.from_s) for host in bill.hosts if host.usd is None
    )
    extra_usd = bill.address_usd + bill.disk_usd
    return bill.paid_usd + extra_usd + unpriced_s * cap.host_usd_h / _HOUR_S


def find_rates(cap: Cap, plan: Plan, find: Callable[[PlannedJob], StepOffers]) -> Cap:
    """Return the cap with the most that a run, and one of its hosts, can cost in an hour.

    All children run at once, on the type that is dearest for them, on demand. Raises InputError if
    a step has no known price.
    """
    rate_usd_h = 0.0
    type_usd_h: dict[str, float] = {}
    for job in plan.jobs:
        offers = find(job)
        rates = _find_step_rates(job, offers)
        if not rates:
            raise InputError(
                f"max_cost: no price is known for the hosts of step {job.step!r}",
                hint="leave max_cost out, or name instance types that have a price",
            )
        rate_usd_h += _sum_fleets(rates, offers)
        type_usd_h |= {name: rate.host_usd_h for name, rate in rates.items()}
    return cap._replace(
        rate_usd_h=rate_usd_h,
        host_usd_h=max(type_usd_h.values(), default=0.0),
        type_usd_h=tuple(type_usd_h.items()),
    )


class _Rate(NamedTuple):
    """A step on hosts of one type."""

    host_usd_h: float
    #: hosts for all its children at once
    hosts: int


def _find_step_rates(job: PlannedJob, offers: StepOffers) -> dict[str, _Rate]:
    """Return type -> the price of a host, and the number of hosts without any limit."""
    at_once = min(job.size, job.max_running or job.size)
    rates = {}
    for name, offer in offers.offers.items():
        usd_h = offer.on_demand_usd_h or offer.lowest_spot_usd_h
        capacity = ec2_types.registered_resources(name)
        fitting = children_per_instance(job.resources, capacity) if capacity else 0
        if usd_h is not None and fitting:
            rates[name] = _Rate(usd_h, math.ceil(at_once / fitting))
    return rates


def _sum_fleets(rates: Mapping[str, _Rate], offers: StepOffers) -> float:
    """Return the most that a step can cost in an hour: when its fleets are full, all of them.

    At most as much as all its children on the dearest type.
    """
    full_usd_h = sum(
        max(_limit_rate(rates[name], count) for name, count in fleet.items() if name in rates)
        for fleet in offers.fleets
        if fleet.keys() & rates.keys()
    )
    return min(full_usd_h, max(_limit_rate(rate, None) for rate in rates.values()))


def _limit_rate(rate: _Rate, limit: int | None) -> float:
    """Return dollars in an hour of the hosts; ``limit``: their largest number, or None."""
    hosts = rate.hosts if limit is None else min(rate.hosts, max(1, limit))
    return rate.host_usd_h * hosts
