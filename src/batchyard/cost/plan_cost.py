"""What a plan is likely to cost on EC2, as ranges, from the seconds of earlier runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchyard import earlier_runs, ec2_types
from batchyard.batch.jobs import JobState, Resources
from batchyard.cost import estimate, market
from batchyard.cost.estimate import Range, Spread, Work
from batchyard.cost.offers import Offer
from batchyard.engines.base import RunRecord
from batchyard.errors import BatchyardError
from batchyard.plan import Plan, PlannedJob

#: A guess of the user is a median. The 95th percentile is taken as this many times more.
_GUESS_FACTOR = 2
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


@dataclass(frozen=True, slots=True)
class PlanCost:
    steps: tuple[StepEstimate, ...]
    #: sentences about where the prices come from, and why a step has none
    sources: tuple[str, ...]

    @property
    def on_demand_usd(self) -> Range | None:
        """Return the sum of all steps; None if one of them is not known."""
        return _add(step.on_demand_usd for step in self.steps)

    @property
    def spot_usd(self) -> Range | None:
        return _add(step.spot_usd for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        return {
            "steps": [step.to_json() for step in self.steps],
            "on_demand_usd": _to_list(self.on_demand_usd),
            "spot_usd": _to_list(self.spot_usd),
            "sources": list(self.sources),
        }


def cost_of_plan(
    plan: Plan, home: Path, prices: market.Market, expect_s: float | None = None
) -> PlanCost:
    """Return what a run of the plan is likely to cost.

    ``home``: the folder with the earlier runs. ``expect_s``: seconds of a command, for steps that
    no earlier run tells about.
    """
    market.check_settings(prices)
    spreads = find_spreads(plan, home)
    if expect_s is not None:
        guess = Spread(expect_s, expect_s * _GUESS_FACTOR)
        spreads = {job.step: spreads.get(job.step, guess) for job in plan.jobs}
    return estimate_plan(plan, spreads, lambda needed: market.price_types(needed, prices))


def find_spreads(plan: Plan, home: Path) -> dict[str, Spread]:
    """Return step -> seconds per command in the newest runs of this pipeline that have the step."""
    records = earlier_runs.newest_records(plan, home)
    spreads = {job.step: estimate.measure_spread(_seconds_of(job, records)) for job in plan.jobs}
    return {step: spread for step, spread in spreads.items() if spread is not None}


def _seconds_of(job: PlannedJob, records: list[RunRecord]) -> list[float]:
    return [
        command.duration_s
        for command in earlier_runs.newest_commands(job.step, records)
        if command.state is JobState.SUCCEEDED and command.duration_s is not None
    ]


def estimate_plan(
    plan: Plan, spreads: Mapping[str, Spread], find: Callable[[Resources], market.Offers]
) -> PlanCost:
    """Return the estimate of each step. ``find`` returns the offers for what a child requests."""
    steps, sources = [], dict[str, None]()
    for job in plan.jobs:
        spread = spreads.get(job.step)
        steps.append(StepEstimate(job.step, spread))
        if spread is None:
            sources[f"{job.step}: no earlier run tells how long a command takes"] = None
            continue
        try:
            offers = find(job.resources)
        except BatchyardError as exc:
            sources[f"{job.step}: {exc}"] = None
            continue
        sources.update(dict.fromkeys(offers.sources))
        steps[-1] = _choose_estimate(job, spread, offers)
    return PlanCost(tuple(steps), tuple(sources))


def _choose_estimate(job: PlannedJob, spread: Spread, offers: market.Offers) -> StepEstimate:
    """Return the estimate on the type whose range has the lowest middle."""
    work = Work(job.command_count, job.size, job.resources, job.max_running)
    estimates = []
    for offer in offers.offers:
        capacity = ec2_types.registered_resources(offer.type.name)
        seconds = capacity and estimate.instance_seconds(work, spread, capacity)
        if seconds:
            on_demand, spot = (
                None if usd_h is None else seconds.scaled(usd_h / _HOUR_S)
                for usd_h in (offer.on_demand_usd_h, offer.lowest_spot_usd_h)
            )
            estimates.append(StepEstimate(job.step, spread, offer, on_demand, spot))
    return min(estimates, key=_middle_usd, default=StepEstimate(job.step, spread))


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
