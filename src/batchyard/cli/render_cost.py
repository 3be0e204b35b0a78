"""Dollars as text: estimates before a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchyard.cli.tables import table
from batchyard.units import format_duration

if TYPE_CHECKING:
    from batchyard.cost.estimate import Range, Spread
    from batchyard.cost.plan_cost import PlanCost

_HEADINGS = ("step", "a command takes", "type", "on-demand", "spot")
_NUMBERS = frozenset({3, 4})


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
        *cost.sources,
    ]


def _show_spread(spread: Spread | None) -> str:
    if spread is None:
        return "?"
    usual = f"{format_duration(spread.median_s)} to {format_duration(spread.p95_s)}"
    return f"{usual} ({spread.count:,} earlier)" if spread.count else f"{usual} (expected)"


def _show_range(usd: Range | None) -> str:
    return "?" if usd is None else f"${usd.low:.4f} to ${usd.high:.4f}"
