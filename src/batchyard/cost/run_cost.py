"""What a run here would have cost on the types that fit: seconds, times share, times price.

This is no bill (``run_bill``): an instance that waits or boots is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from batchyard import ec2_types
from batchyard.batch.jobs import JobState, Resources
from batchyard.cost import market
from batchyard.cost.bill import dominant_share
from batchyard.cost.offers import Offer
from batchyard.engines.base import AttemptDetail, CommandDetail, RunRecord
from batchyard.errors import BatchyardError
from batchyard.plan import PlannedJob

NOT_COUNTED = (
    "not counted: boot and idle time of instances, disks, network, and what else AWS bills"
)
_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class StepUse:
    """The seconds of a step's ended attempts."""

    step: str
    requested: Resources
    #: attempts that succeeded, and commands that succeeded in other attempts
    used_s: float = 0.0
    #: the rest: attempts, or parts of them, that were not kept
    lost_s: float = 0.0
    #: commands that succeeded
    succeeded: int = 0


@dataclass(frozen=True, slots=True)
class StepPrice:
    """A step on the instance type that is cheapest for it; no offer if no price is known."""

    use: StepUse
    offer: Offer | None = None
    #: the part of the instance that a child uses
    share: float = 0.0

    def usd(self, seconds: float, *, is_spot: bool) -> float | None:
        """Return what these seconds of one child cost; None if the price is not known."""
        if self.offer is None:
            return None
        usd_h = self.offer.lowest_spot_usd_h if is_spot else self.offer.on_demand_usd_h
        return None if usd_h is None else seconds * self.share * usd_h / _HOUR_S

    def to_json(self) -> dict[str, Any]:
        use = self.use
        spot_usd = self.usd(use.used_s, is_spot=True)
        return {
            "step": use.step,
            "type": self.offer and self.offer.type.name,
            "share": self.share,
            "used_s": use.used_s,
            "lost_s": use.lost_s,
            "used_on_demand_usd": self.usd(use.used_s, is_spot=False),
            "lost_on_demand_usd": self.usd(use.lost_s, is_spot=False),
            "used_spot_usd": spot_usd,
            "lost_spot_usd": self.usd(use.lost_s, is_spot=True),
            "spot_usd_per_command": (
                None if spot_usd is None or not use.succeeded else spot_usd / use.succeeded
            ),
        }


@dataclass(frozen=True, slots=True)
class RunCost:
    run_id: str
    steps: tuple[StepPrice, ...]
    #: sentences about where the prices come from
    sources: tuple[str, ...]
    #: whether the hosts cost nothing; else they belong to a cluster, and their cost is not known
    is_free: bool = True

    def total_usd(self, *, is_spot: bool) -> float | None:
        """Return what all attempts cost; None if the price of a step is not known."""
        amounts = [
            step.usd(step.use.used_s + step.use.lost_s, is_spot=is_spot) for step in self.steps
        ]
        return None if None in amounts else sum(usd or 0.0 for usd in amounts)

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run_id,
            "steps": [step.to_json() for step in self.steps],
            "on_demand_usd": self.total_usd(is_spot=False),
            "spot_usd": self.total_usd(is_spot=True),
            "sources": list(self.sources),
            "not_counted": NOT_COUNTED,
        }


def cost_of_run(record: RunRecord, prices: market.Market) -> RunCost:
    """Return what the ended attempts of a run would cost, at today's prices."""
    market.check_settings(prices)
    engine = record.open()
    try:
        uses = measure_uses(record.plan.jobs, engine.attempts(engine.job_ids), engine.commands())
        is_free = engine.setup().environment is None
    finally:
        engine.close()
    cost = price_uses(record.run_id, uses, lambda requested: market.price_types(requested, prices))
    return replace(cost, is_free=is_free)


def measure_uses(
    jobs: Iterable[PlannedJob],
    attempts: Iterable[AttemptDetail],
    commands: Iterable[CommandDetail],
) -> list[StepUse]:
    """Return the seconds of each step. A command of a failed attempt that succeeded is used."""
    used_s: dict[str, float] = {}
    total_s: dict[str, float] = {}
    succeeded: dict[str, int] = {}
    failed: set[tuple[str, int, int]] = set()
    for attempt in attempts:
        step, seconds = attempt.step, attempt.duration_s
        total_s[step] = total_s.get(step, 0.0) + seconds
        if attempt.state is JobState.SUCCEEDED:
            used_s[step] = used_s.get(step, 0.0) + seconds
        else:
            failed.add((step, attempt.index, attempt.attempt))
    for command in commands:
        if command.state is not JobState.SUCCEEDED:
            continue
        succeeded[command.step] = succeeded.get(command.step, 0) + 1
        if (command.step, command.index, command.child_attempt) in failed:
            used_s[command.step] = used_s.get(command.step, 0.0) + (command.duration_s or 0.0)
    return [
        StepUse(
            job.step,
            job.resources,
            min(used_s.get(job.step, 0.0), total_s.get(job.step, 0.0)),
            max(0.0, total_s.get(job.step, 0.0) - used_s.get(job.step, 0.0)),
            succeeded.get(job.step, 0),
        )
        for job in jobs
    ]


def price_uses(
    run_id: str, uses: Sequence[StepUse], find: Callable[[Resources], market.Offers]
) -> RunCost:
    """Return the steps with their prices. ``find`` returns the offers for what a child requests."""
    offers_by_request: dict[Resources, market.Offers | None] = {}
    sources: dict[str, None] = {}
    for use in uses:
        if use.requested in offers_by_request:
            continue
        try:
            offers = offers_by_request[use.requested] = find(use.requested)
            sources.update(dict.fromkeys(offers.sources))
        except BatchyardError as exc:
            offers_by_request[use.requested] = None
            sources[f"{use.step}: {exc}"] = None
    steps = tuple(_choose_offer(use, offers_by_request[use.requested]) for use in uses)
    return RunCost(run_id, steps, tuple(sources))


def _choose_offer(use: StepUse, offers: market.Offers | None) -> StepPrice:
    """Return the step on the type on which one child is cheapest: by its share of the price."""
    return next(iter(sort_prices(use, offers)), StepPrice(use)) if offers else StepPrice(use)


def sort_prices(use: StepUse, offers: market.Offers) -> list[StepPrice]:
    """Return the step on each of the types: first the one on which a child's share costs least."""
    priced = [
        StepPrice(use, offer, dominant_share(use.requested, registered))
        for offer in offers.offers
        if (registered := ec2_types.registered_resources(offer.type.name)) is not None
    ]
    return sorted(
        priced, key=lambda step: step.share * ((step.offer and step.offer.lowest_usd_h) or 0.0)
    )
