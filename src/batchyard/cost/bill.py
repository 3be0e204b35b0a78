"""Split what instances cost into used, idle and lost. Pure.

A job uses the largest of its shares of an instance's GPUs, vCPUs and memory, since nobody else can
use the rest of the instance to that extent. At every moment:

- used: the shares of attempts that counted
- lost: the shares of attempts that did not count, such as failed or reclaimed ones
- idle: what is left: boot, pulls of images, holes, the delay before an instance ends

Where the shares of several jobs add up to more than the instance, they are reduced in proportion,
so that used + idle + lost is always what is paid.
"""

from __future__ import annotations

from bisect import bisect_right
from calendar import monthrange
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise

from batchyard.batch.jobs import Resources

#: EC2 bills seconds of Linux instances, and at least this many of each instance.
MIN_BILLED_S = 60
#: A spot instance that EC2 itself interrupts this early costs nothing.
FREE_RECLAIM_S = 3600
_HOUR_S, _DAY_S = 3600, 86_400


@dataclass(frozen=True, slots=True)
class PriceChange:
    since_s: float
    usd_h: float


@dataclass(frozen=True, slots=True)
class Instance:
    id: str
    #: what it offers to jobs
    capacity: Resources
    started_s: float
    ended_s: float
    #: in the order of time; the first one counts from the start. Empty if no price is known.
    prices: tuple[PriceChange, ...]
    is_spot: bool = False
    #: whether EC2 interrupted it, not the user or AWS Batch
    was_reclaimed: bool = False
    #: the price that it would have on demand; None if it is not known
    on_demand_usd_h: float | None = None
    #: when EC2 launched it, and when EC2 ended it, if only a part of its life is billed
    launched_s: float | None = None
    real_end_s: float | None = None

    @property
    def is_free(self) -> bool:
        """Return whether EC2 interrupted it in its first hour."""
        launched_s = self.started_s if self.launched_s is None else self.launched_s
        ended_s = self.ended_s if self.real_end_s is None else self.real_end_s
        lifetime_s = max(0.0, ended_s - launched_s)
        return self.is_spot and self.was_reclaimed and lifetime_s < FREE_RECLAIM_S

    @property
    def lifetime_s(self) -> float:
        """Return the seconds that EC2 bills of an instance that is not free."""
        return max(float(MIN_BILLED_S), self.ended_s - self.started_s)

    @property
    def billed_s(self) -> float:
        """Return the seconds that EC2 bills."""
        return 0.0 if self.is_free else self.lifetime_s

    def usd_h_at(self, moment_s: float) -> float:
        """Return the price at a moment: that of the last change before it."""
        if self.is_free:
            return 0.0
        index = bisect_right(self.prices, moment_s, key=lambda price: price.since_s) - 1
        return self.prices[max(0, index)].usd_h


@dataclass(frozen=True, slots=True)
class Use:
    """An attempt of a job on an instance."""

    instance: str
    step: str
    started_s: float
    ended_s: float
    resources: Resources
    #: False for an attempt whose work was not kept
    counts: bool = True


@dataclass(frozen=True, slots=True)
class StepCost:
    used_usd: float = 0.0
    lost_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Bill:
    """What instances cost, in US dollars."""

    used_usd: float = 0.0
    idle_usd: float = 0.0
    lost_usd: float = 0.0
    by_step: Mapping[str, StepCost] = field(default_factory=dict)
    #: the same on demand, without the attempts that reclaims ended; None if a price is not known
    on_demand_usd: float | None = 0.0
    #: instances without a known price, which are not part of the bill
    unpriced: tuple[str, ...] = ()

    @property
    def paid_usd(self) -> float:
        return self.used_usd + self.idle_usd + self.lost_usd

    @property
    def saved_usd(self) -> float | None:
        """Return what on-demand instances would have cost more; None if it is not known."""
        return None if self.on_demand_usd is None else self.on_demand_usd - self.paid_usd

    @property
    def efficiency(self) -> float | None:
        """Return the part of the paid dollars that was used; None if nothing was paid."""
        return self.used_usd / self.paid_usd if self.paid_usd else None


def dominant_share(requested: Resources, capacity: Resources) -> float:
    """Return the largest share of vCPUs, memory and GPUs, at most 1."""
    amounts = (
        (requested.vcpus, capacity.vcpus),
        (requested.memory_mib, capacity.memory_mib),
        (requested.gpus, capacity.gpus),
    )
    shares = [1.0 if amount > total else amount / total for amount, total in amounts if amount]
    return max(shares, default=0.0)


def make_bill(instances: Iterable[Instance], uses: Iterable[Use]) -> Bill:
    """Return the bill of the instances. Time outside the life of its instance costs nothing."""
    uses_of: dict[str, list[Use]] = {}
    for use in uses:
        uses_of.setdefault(use.instance, []).append(use)
    bills = [_bill_instance(instance, uses_of.get(instance.id, ())) for instance in instances]
    return add_bills(bills)


def add_bills(bills: Iterable[Bill]) -> Bill:
    bills = list(bills)
    by_step: dict[str, StepCost] = {}
    for bill in bills:
        for step, cost in bill.by_step.items():
            total = by_step.get(step, StepCost())
            by_step[step] = StepCost(total.used_usd + cost.used_usd, total.lost_usd + cost.lost_usd)
    on_demand = [bill.on_demand_usd for bill in bills]
    return Bill(
        sum(bill.used_usd for bill in bills),
        sum(bill.idle_usd for bill in bills),
        sum(bill.lost_usd for bill in bills),
        by_step,
        None if None in on_demand else sum(usd or 0.0 for usd in on_demand),
        tuple(name for bill in bills for name in bill.unpriced),
    )


def price_disk(gib: int, usd_gib_month: float, from_s: float, until_s: float) -> float:
    """Return what an EBS volume costs: by the second, and by the days of the month.

    At least a minute is billed, also of an instance that is free. Months are those of UTC.
    """
    until_s = max(until_s, from_s + MIN_BILLED_S)
    months = 0.0
    while from_s < until_s:
        begin = datetime.fromtimestamp(from_s, UTC)
        month_s = monthrange(begin.year, begin.month)[1] * _DAY_S
        end_s = datetime(begin.year, begin.month, 1, tzinfo=UTC).timestamp() + month_s
        months += (min(end_s, until_s) - from_s) / month_s
        from_s = end_s
    return usd_gib_month * gib * months


def price_instance(instance: Instance) -> float:
    """Return what an instance costs, at the price of each moment."""
    end_s = instance.started_s + instance.billed_s
    moments = _moments(instance, (), end_s)
    return sum(
        instance.usd_h_at(start) * (end - start) / _HOUR_S for start, end in pairwise(moments)
    )


def _bill_instance(instance: Instance, uses: Sequence[Use]) -> Bill:
    if not instance.prices:
        return Bill(on_demand_usd=None, unpriced=(instance.id,))
    end_s = instance.started_s + instance.lifetime_s
    spans = [
        (
            _clip(use.started_s, instance.started_s, end_s),
            _clip(use.ended_s, instance.started_s, end_s),
            dominant_share(use.resources, instance.capacity),
        )
        for use in uses
    ]
    timeline = _Timeline(instance, spans, end_s)
    by_step: dict[str, StepCost] = {}
    lost_share_s = 0.0
    for use, (start_s, stop_s, share) in zip(uses, spans, strict=True):
        usd = share * timeline.usd_between(start_s, stop_s)
        cost = by_step.get(use.step, StepCost())
        if use.counts:
            by_step[use.step] = StepCost(cost.used_usd + usd, cost.lost_usd)
        else:
            by_step[use.step] = StepCost(cost.used_usd, cost.lost_usd + usd)
            lost_share_s += share * timeline.seconds_between(start_s, stop_s)
    saved_s = lost_share_s if instance.was_reclaimed else 0.0
    return Bill(
        sum(cost.used_usd for cost in by_step.values()),
        timeline.idle_usd,
        sum(cost.lost_usd for cost in by_step.values()),
        by_step,
        _on_demand_usd(instance, saved_s),
    )


def _on_demand_usd(instance: Instance, saved_s: float) -> float | None:
    if instance.on_demand_usd_h is None:
        return None
    return instance.on_demand_usd_h * max(0.0, instance.lifetime_s - saved_s) / _HOUR_S


class _Timeline:
    """Dollars and seconds of a whole instance up to each moment at which something changes.

    Where the shares of jobs add up to more than 1, both run slower, in proportion.
    """

    def __init__(
        self, instance: Instance, spans: Sequence[tuple[float, float, float]], end_s: float
    ) -> None:
        self._moments = _moments(instance, spans, end_s)
        change: dict[float, float] = {}
        for start_s, stop_s, share in spans:
            change[start_s] = change.get(start_s, 0.0) + share
            change[stop_s] = change.get(stop_s, 0.0) - share
        self._usd = [0.0]
        self._seconds = [0.0]
        self.idle_usd = 0.0
        load = 0.0
        for start_s, next_s in pairwise(self._moments):
            load += change.get(start_s, 0.0)
            seconds = next_s - start_s
            usd = instance.usd_h_at(start_s) * seconds / _HOUR_S
            self._usd.append(self._usd[-1] + usd / max(1.0, load))
            self._seconds.append(self._seconds[-1] + seconds / max(1.0, load))
            self.idle_usd += usd * max(0.0, 1.0 - load)

    def usd_between(self, start_s: float, stop_s: float) -> float:
        return self._at(self._usd, stop_s) - self._at(self._usd, start_s)

    def seconds_between(self, start_s: float, stop_s: float) -> float:
        return self._at(self._seconds, stop_s) - self._at(self._seconds, start_s)

    def _at(self, totals: Sequence[float], moment_s: float) -> float:
        return totals[bisect_right(self._moments, moment_s) - 1]


def _moments(
    instance: Instance, spans: Iterable[tuple[float, float, float]], end_s: float
) -> list[float]:
    """Return the times at which a job starts or ends, or the price changes, in order."""
    start_s = instance.started_s
    changes = (price.since_s for price in instance.prices if start_s < price.since_s < end_s)
    return sorted({start_s, end_s, *changes, *(time for span in spans for time in span[:2])})


def _clip(moment_s: float, start_s: float, end_s: float) -> float:
    return min(max(moment_s, start_s), end_s)
