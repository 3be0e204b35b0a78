"""What a plan is likely to cost on EC2, as ranges, from the seconds of earlier runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from batchyard import earlier_runs, ec2_types
from batchyard.batch.jobs import JobState, Resources
from batchyard.cost import estimate, market
from batchyard.cost.estimate import Range, Spread, Work
from batchyard.cost.offers import Offer, StepOffers, select_queue_types
from batchyard.engines.base import HostChoice, PreparedRun, RunRecord
from batchyard.errors import BatchyardError
from batchyard.plan import Plan, PlannedJob

#: A guess of the user is a median. The 95th percentile is taken as this many times more.
_GUESS_FACTOR = 2
#: A queue may start any of its types. With more types than this, the cheapest is taken.
_FEW_TYPES = 6
#: Types of a queue that are priced: each takes a call, and a run is about to begin.
_MAX_TYPES = 8
_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class StepEstimate:
    step: str
    #: seconds per command; None if nobody knows
    spread: Spread | None
    #: the instance type on which the step is cheapest; None if no price or no time is known
    offer: Offer | None = None
    on_demand_usd: Range | None = None
    spot_usd: Range | None = None

    def to_json(self) -> dict[str, Any]:
        spread = self.spread
        return {
            "step": self.step,
            "type": self.offer and self.offer.type.name,
            "median_s": spread and spread.median_s,
            "p95_s": spread and spread.p95_s,
            "earlier_commands": spread.count if spread else 0,
            "on_demand_usd": _to_list(self.on_demand_usd),
            "spot_usd": _to_list(self.spot_usd),
        }


class CapFit(StrEnum):
    """How a cap compares with an estimate."""

    #: Even the low estimate is above the cap.
    TOO_LOW = "too low"
    #: The cap is inside the estimate.
    MAY_BE_REACHED = "may be reached"
    #: The whole estimate is below the cap.
    ABOVE_ESTIMATE = "above the estimate"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PlanCost:
    steps: tuple[StepEstimate, ...]
    #: sentences about where the prices come from, and why a step has none
    sources: tuple[str, ...]
    #: an hour of all hosts that the queues of the run may start, if a step is not known
    fleet_on_demand_usd_h: Range | None = None
    fleet_spot_usd_h: Range | None = None
    #: the most that the run may cost; None for no limit
    max_cost_usd: float | None = None

    @property
    def on_demand_usd(self) -> Range | None:
        """Return the sum of all steps; None if one of them is not known."""
        return _add(step.on_demand_usd for step in self.steps)

    @property
    def spot_usd(self) -> Range | None:
        return _add(step.spot_usd for step in self.steps)

    @property
    def is_unknown(self) -> bool:
        """Whether neither the cost of the run nor that of its fleet is known."""
        ranges = (self.on_demand_usd, self.spot_usd)
        fleet = (self.fleet_on_demand_usd_h, self.fleet_spot_usd_h)
        return not any((*ranges, *fleet))

    @property
    def low_usd(self) -> float:
        """Return the least that the steps whose cost is known cost, on either market."""
        ranges = [(step.spot_usd, step.on_demand_usd) for step in self.steps]
        return sum(min((usd.low for usd in pair if usd), default=0.0) for pair in ranges)

    @property
    def cap_fit(self) -> CapFit | None:
        """Return how the cap compares with the estimate; None without a cap."""
        if self.max_cost_usd is None:
            return None
        if self.low_usd > self.max_cost_usd:
            return CapFit.TOO_LOW
        totals = [usd for usd in (self.on_demand_usd, self.spot_usd) if usd is not None]
        if not totals:
            return CapFit.UNKNOWN
        is_above = max(usd.high for usd in totals) <= self.max_cost_usd
        return CapFit.ABOVE_ESTIMATE if is_above else CapFit.MAY_BE_REACHED

    def to_json(self) -> dict[str, Any]:
        return {
            "steps": [step.to_json() for step in self.steps],
            "on_demand_usd": _to_list(self.on_demand_usd),
            "spot_usd": _to_list(self.spot_usd),
            "max_cost_usd": self.max_cost_usd,
            "max_cost_is": self.cap_fit,
            "fleet_on_demand_usd_h": _to_list(self.fleet_on_demand_usd_h),
            "fleet_spot_usd_h": _to_list(self.fleet_spot_usd_h),
            "sources": list(self.sources),
        }


def cost_of_prepared(
    prepared: PreparedRun,
    home: Path,
    engine: str,
    prices: market.Market | None = None,
    expect_s: float | None = None,
    *,
    asks_runs: bool = True,
    max_cost_usd: float | None = None,
) -> PlanCost | None:
    """Return what a run is likely to cost on the hosts of its queues; None if it costs nothing.

    Prices are those of the region of its environment. ``home``: the folder with the earlier runs.
    ``engine``: the name of the engine; its runs tell more about the length of commands than others.
    ``expect_s``: as in ``cost_of_plan``. ``asks_runs`` False: only what this machine has recorded
    about earlier runs counts. ``max_cost_usd``: the cap of the run.
    """
    environment = prepared.environment
    if environment is None:
        return None
    prices = prices or market.AwsMarket(environment.region, environment.profile)
    spreads = find_spreads(prepared.plan, home, engine, asks=asks_runs)
    cost = _estimate(prepared.plan, spreads, prices, expect_s, prepared.hosts)
    return replace(cost, max_cost_usd=max_cost_usd)


def cost_of_plan(
    plan: Plan, home: Path, prices: market.Market, expect_s: float | None = None
) -> PlanCost:
    """Return what a run of the plan is likely to cost on the types that fit.

    ``home``: the folder with the earlier runs. ``expect_s``: seconds of a command, for steps that
    no earlier run tells about; the file's `expect` comes first.
    """
    market.check_settings(prices)
    return _estimate(plan, find_spreads(plan, home), prices, expect_s, {})


def _estimate(
    plan: Plan,
    spreads: Mapping[str, Spread],
    prices: market.Market,
    expect_s: float | None,
    hosts: Mapping[str, Sequence[HostChoice]],
) -> PlanCost:
    spreads = dict(spreads)
    for job in plan.jobs:
        guess_s = expect_s if job.expect_s is None else job.expect_s
        if guess_s is not None:
            spreads.setdefault(job.step, Spread(guess_s, guess_s * _GUESS_FACTOR))
    return estimate_plan(plan, spreads, _OfferFinder(prices, hosts).find)


def find_spreads(
    plan: Plan, home: Path, engine: str | None = None, *, asks: bool = True
) -> dict[str, Spread]:
    """Return step -> seconds per command in the newest runs of this pipeline that have the step.

    ``engine``: runs of this engine count; of another one only where there is none. ``asks`` False:
    no request is sent.
    """
    preferred = earlier_runs.newest_records(plan, home, engine) if engine else []
    other_records: list[RunRecord] | None = None
    spreads = {}
    for job in plan.jobs:
        seconds = _seconds_of(job, preferred, asks)
        if not seconds:
            if other_records is None:
                other_records = earlier_runs.newest_records(plan, home)
            seconds = _seconds_of(job, other_records, asks)
        spread = estimate.measure_spread(seconds)
        if spread is not None:
            spreads[job.step] = spread
    return spreads


def _seconds_of(job: PlannedJob, records: Sequence[RunRecord], asks: bool) -> list[float]:
    recorded = [seconds for record in records for seconds in _recorded_seconds(record, job.step)]
    if recorded:
        return recorded
    return [
        command.duration_s
        for command in earlier_runs.newest_commands(
            job.step, records if asks else filter(_is_free, records)
        )
        if command.state is JobState.SUCCEEDED and command.duration_s is not None
    ]


def _is_free(record: RunRecord) -> bool:
    """Return whether a run cost nothing: it was on this machine, which has all its records."""
    run = record.open()
    try:
        return run.setup().environment is None
    finally:
        run.close()


def _recorded_seconds(record: RunRecord, step: str) -> list[float]:
    """Return seconds per command of attempts that counted, as this machine has recorded them.

    No request is sent. Empty for a run without a record of its hosts.
    """
    try:
        run = record.open()
        try:
            usage = run.usage(asks=False)
        finally:
            run.close()
        if usage is None:
            return []
        planned = record.plan.job(step)
    except (BatchyardError, OSError, KeyError):
        return []
    commands_per_child = max(1.0, planned.command_count / planned.size)
    return [
        (use.ended_s - use.started_s) / commands_per_child
        for use in usage.uses
        if use.step == step and use.counts and use.ended_s is not None
    ]


class _OfferFinder:
    """Asks for prices, once for steps that request the same of the same hosts."""

    def __init__(
        self,
        prices: market.Market,
        hosts: Mapping[str, Sequence[HostChoice]],
        max_types: int | None = _MAX_TYPES,
    ) -> None:
        self._prices = prices
        self._hosts = hosts
        self._max_types = max_types
        self._answers: dict[tuple[Resources, tuple[HostChoice, ...]], StepOffers] = {}

    def find(self, job: PlannedJob) -> StepOffers:
        """Return the offers for a step. Raises BatchyardError if there is none."""
        choices = tuple(self._hosts.get(job.step, ()))
        key = (job.resources, choices)
        if key not in self._answers:
            self._answers[key] = self._ask(job.resources, choices)
        return self._answers[key]

    def _ask(self, needed: Resources, choices: tuple[HostChoice, ...]) -> StepOffers:
        if not choices:
            offers = market.price_types(needed, self._prices)
            by_name = {offer.type.name: offer for offer in offers.offers}
            return StepOffers(by_name, [dict.fromkeys(by_name)], offers.sources)
        fleets = select_queue_types(needed, choices)
        types = list(dict.fromkeys(listed for fleet in fleets for listed in fleet))
        offers = market.find_offers(types, self._prices, datetime.now(UTC), self._max_types)
        by_name = {offer.type.name: offer for offer in offers.offers}
        numbers = [{listed.name: count for listed, count in fleet.items()} for fleet in fleets]
        return StepOffers(by_name, numbers, offers.sources, are_of_queue=True)


def make_finder(
    prices: market.Market, hosts: Mapping[str, Sequence[HostChoice]]
) -> Callable[[PlannedJob], StepOffers]:
    """Return a function that returns all offers for a step, also those of dear types.

    ``hosts``: see PreparedRun.
    """
    return _OfferFinder(prices, hosts, max_types=None).find


def estimate_plan(
    plan: Plan, spreads: Mapping[str, Spread], find: Callable[[PlannedJob], StepOffers]
) -> PlanCost:
    """Return the estimate of each step. ``find`` returns the offers for a step."""
    steps, sources = [], dict[str, None]()
    fleets: dict[str, StepOffers] = {}
    for job in plan.jobs:
        spread = spreads.get(job.step)
        steps.append(StepEstimate(job.step, spread))
        if spread is None:
            sources[f"{job.step}: no earlier run tells how long a command takes"] = None
        try:
            offers = find(job)
        except BatchyardError as exc:
            sources[f"{job.step}: {exc}"] = None
            continue
        sources.update(dict.fromkeys(offers.sources))
        if spread is not None:
            steps[-1] = _choose_estimate(job, spread, offers)
            continue
        if offers.are_of_queue:
            fleets[job.step] = offers
    on_demand, spot = (_price_fleets(fleets.values(), is_spot=is_spot) for is_spot in (False, True))
    return PlanCost(tuple(steps), tuple(sources), on_demand, spot)


def _price_fleets(fleets: Iterable[StepOffers], *, is_spot: bool) -> Range | None:
    """Return an hour of the largest of the fleets at full size; None if no price is known."""
    ranges = [usd for step in fleets if (usd := _price_fleet(step, is_spot=is_spot)) is not None]
    return max(ranges, key=lambda usd: usd.high, default=None)


def _price_fleet(step: StepOffers, *, is_spot: bool) -> Range | None:
    ranges = []
    for fleet in step.fleets:
        amounts = [
            usd_h * count
            for name, count in fleet.items()
            if count is not None
            and (offer := step.offers.get(name)) is not None
            and (usd_h := offer.lowest_spot_usd_h if is_spot else offer.on_demand_usd_h) is not None
        ]
        if amounts:
            ranges.append(Range(min(amounts), max(amounts)))
    return _add(ranges) if ranges else None


def _choose_estimate(job: PlannedJob, spread: Spread, offers: StepOffers) -> StepEstimate:
    """Return the estimate on the type whose range has the lowest middle.

    Of a queue with few types, each may be started: then the range is that of all of them.
    """
    work = Work(job.command_count, job.size, job.resources, job.max_running)
    estimates = []
    for name, offer in offers.offers.items():
        capacity = ec2_types.registered_resources(name)
        count = offers.max_instances(name)
        seconds = capacity and estimate.instance_seconds(work, spread, capacity, count)
        if seconds:
            on_demand, spot = (
                None if usd_h is None else seconds.scaled(usd_h / _HOUR_S)
                for usd_h in (offer.on_demand_usd_h, offer.lowest_spot_usd_h)
            )
            estimates.append(StepEstimate(job.step, spread, offer, on_demand, spot))
    cheapest = min(estimates, key=_middle_usd, default=StepEstimate(job.step, spread))
    if not offers.are_of_queue or len(estimates) > _FEW_TYPES:
        return cheapest
    return replace(
        cheapest,
        on_demand_usd=_cover(entry.on_demand_usd for entry in estimates),
        spot_usd=_cover(entry.spot_usd for entry in estimates),
    )


def _cover(ranges: Iterable[Range | None]) -> Range | None:
    known_ranges = [usd for usd in ranges if usd is not None]
    if not known_ranges:
        return None
    return Range(min(usd.low for usd in known_ranges), max(usd.high for usd in known_ranges))


def _middle_usd(step: StepEstimate) -> float:
    usd = step.spot_usd or step.on_demand_usd
    return usd.low + usd.high if usd else 0.0


def _add(ranges: Iterable[Range | None]) -> Range | None:
    ranges = list(ranges)
    known_ranges = [usd for usd in ranges if usd is not None]
    if len(known_ranges) < len(ranges):
        return None
    return Range(sum(usd.low for usd in known_ranges), sum(usd.high for usd in known_ranges))


def _to_list(usd: Range | None) -> list[float] | None:
    return None if usd is None else [usd.low, usd.high]
