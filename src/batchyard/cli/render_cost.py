"""Dollars as text: estimates before a run, and advice from earlier ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchyard.cli.render_bill import show_dollars
from batchyard.cli.tables import table
from batchyard.units import format_duration, format_memory

if TYPE_CHECKING:
    from batchyard.batch.jobs import Resources
    from batchyard.cost.advice import Advice, StepAdvice
    from batchyard.cost.estimate import Range, Spread
    from batchyard.cost.plan_cost import PlanCost
    from batchyard.cost.run_cost import StepPrice

_HEADINGS = ("step", "a command takes", "type", "on-demand", "spot")
_NUMBERS = frozenset({3, 4})
_ADVICE_HEADINGS = ("step", "asks for", "used", "needs", "types", "as requested", "as needed")
_ADVICE_NUMBERS = frozenset({5, 6})


def estimate_lines(cost: PlanCost) -> list[str]:
    """Return a table of what each step is likely to cost, and where the numbers come from."""
    rows = [
        (
            step.step,
            _show_spread(step.spread),
            step.offer.type.name if step.offer else "?",
            _show_range(step.on_demand_usd),
            _show_range(step.spot_usd),
        )
        for step in cost.steps
    ]
    totals = ("all", "", "", _show_range(cost.on_demand_usd), _show_range(cost.spot_usd))
    return [
        "estimated cost on EC2, with boot and idle time of instances:",
        *table(_HEADINGS, [*rows, totals], _NUMBERS),
        *_fleet_lines(cost),
        *_cap_lines(cost),
        *cost.sources,
    ]


def estimate_line(cost: PlanCost) -> str:
    """Return what a run is likely to cost, in one line, with its reasons."""
    spot, on_demand = cost.spot_usd, cost.on_demand_usd
    if spot is None and on_demand is None:
        steps = ", ".join(step.step for step in cost.steps if step.spot_usd is None)
        parts = [f"estimated cost: unknown for {steps}", *_fleet_lines(cost), *_cap_lines(cost)]
        return "; ".join(parts)
    reasons = "; ".join(
        f"{step.step}: {_show_spread(step.spread)} a command on {step.offer.type.name}"
        for step in cost.steps
        if step.offer
    )
    amounts = f"{_show_range(spot)} on spot, {_show_range(on_demand)} on demand"
    return "; ".join([f"estimated cost: {amounts} ({reasons})", *_cap_lines(cost)])


def _cap_lines(cost: PlanCost) -> list[str]:
    if cost.cap_fit is None:
        return []
    from batchyard.cost.plan_cost import CapFit

    sentences = {
        CapFit.TOO_LOW: "is below the low estimate: `run` refuses it",
        CapFit.MAY_BE_REACHED: "is inside the estimate: the run may be held there",
        CapFit.ABOVE_ESTIMATE: "is above the estimate",
        CapFit.UNKNOWN: "is not compared: the estimate is not known",
    }
    return [f"max_cost ${cost.max_cost_usd:g} {sentences[cost.cap_fit]}"]


def _fleet_lines(cost: PlanCost) -> list[str]:
    if cost.fleet_spot_usd_h is None and cost.fleet_on_demand_usd_h is None:
        return []
    spot_h, on_demand_h = map(_show_range, (cost.fleet_spot_usd_h, cost.fleet_on_demand_usd_h))
    return [f"an hour of the fleet at full size: {spot_h} on spot, {on_demand_h} on demand"]


def _show_spread(spread: Spread | None) -> str:
    if spread is None:
        return "?"
    usual = f"{format_duration(spread.median_s)} to {format_duration(spread.p95_s)}"
    return f"{usual} ({spread.count:,} earlier)" if spread.count else f"{usual} (expected)"


def _show_range(usd: Range | None) -> str:
    if usd is None:
        return "?"
    low, high = f"${usd.low:.4f}", f"${usd.high:.4f}"
    return low if low == high else f"{low} to {high}"


def advice_lines(advice: Advice) -> list[str]:
    """Return a table of what each step asks for, used and needs, and sentences about it."""
    return [
        "what earlier runs used, and what the same commands cost on spot, with their share alone:",
        *table(_ADVICE_HEADINGS, list(map(_advice_row, advice.steps)), _ADVICE_NUMBERS),
        *(sentence for step in advice.steps for sentence in step.sentences),
        *advice.sources,
    ]


def _advice_row(step: StepAdvice) -> tuple[str, ...]:
    use = step.use
    peak = "?" if use is None or use.largest_mib is None else format_memory(use.largest_mib)
    busy = "?" if use is None or use.vcpus is None else f"{use.vcpus:.1f}"
    types = [price.offer.type.name for price in step.as_needed if price.offer]
    return (
        step.step,
        _show_resources(step.requested),
        f"{busy} vCPUs, {peak}{_show_gpu_use(step)}",
        "?" if step.needed is None else _show_resources(step.needed),
        ", ".join(types) or "?",
        _show_spot_usd(step.as_requested),
        _show_spot_usd(next(iter(step.as_needed), None)),
    )


def _show_gpu_use(step: StepAdvice) -> str:
    peak_mib = None if step.use is None else step.use.peak_gpu_mib
    return "" if peak_mib is None else f", GPU {format_memory(peak_mib)}"


def _show_resources(resources: Resources) -> str:
    gpus = f", {resources.gpus} GPUs" if resources.gpus else ""
    return f"{resources.vcpus} vCPUs, {format_memory(resources.memory_mib)}{gpus}"


def _show_spot_usd(price: StepPrice | None) -> str:
    return show_dollars(price.usd(price.use.used_s, is_spot=True) if price else None)
