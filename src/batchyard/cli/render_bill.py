"""The bill of a run as text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from batchyard.cli.tables import table
from batchyard.units import format_duration

if TYPE_CHECKING:
    from batchyard.cost.run_bill import RunBill, StepBill

_HEADINGS = ("step", "commands", "each", "used", "lost", "a command")
_NUMBERS = frozenset(range(1, 6))
_HOST_HEADINGS = ("hosts", "type", "zone", "market", "time", "cost")
_HOST_NUMBERS = frozenset({0, 4, 5})
_SMALLEST_USD = 0.0001


def bill_lines(cost: RunBill) -> list[str]:
    """Return the bill of a run: its sum, its steps, its hosts, and what is not part of it."""
    bill = cost.bill
    steps = [_step_row(step) for step in cost.steps]
    hosts = [
        (
            str(group.count),
            group.host.type or "?",
            group.host.zone or "?",
            "spot" if group.host.is_spot else "on-demand",
            format_duration(group.seconds),
            show_dollars(group.usd),
        )
        for group in cost.host_groups()
    ]
    return [
        f"run {cost.run_id}: {cost_line(cost)}",
        "",
        *table(_HEADINGS, steps, _NUMBERS),
        "",
        *table(_HOST_HEADINGS, hosts, _HOST_NUMBERS),
        "",
        f"idle: {show_dollars(bill.idle_usd)} (boot, pulls of images, holes, scale-down)",
        *_saving_lines(cost),
        *cost.sources,
        *(f"not known: {sentence}" for sentence in cost.unknown),
        f"not counted: {', '.join(cost.not_counted)}",
    ]


def recorded_lines(cost: RunBill | None, flags: str = "") -> list[str]:
    """Return the lines of a status about the cost; none if it is nothing, or wholly unknown.

    ``flags``: as in ``render.status_lines``.
    """
    if cost is None or (cost.unknown and not cost.bill.paid_usd):
        return []
    return ["", f"cost: {cost_line(cost)}; `batchyard cost {cost.run_id}{flags}` shows it by step"]


def cost_line(cost: RunBill) -> str:
    """Return what a run has cost, in one line."""
    bill = cost.bill
    until = datetime.fromtimestamp(cost.until_s, UTC)
    when = "" if cost.is_final else f" until {until:%Y-%m-%d %H:%M} UTC"
    if cost.unknown and not bill.paid_usd:
        return f"cost unknown{when}"
    parts = [f"{show_dollars(bill.paid_usd)} paid{when}"]
    if bill.efficiency is not None:
        parts.append(f"{bill.efficiency:.0%} of it used")
    if bill.lost_usd:
        parts.append(f"{show_dollars(bill.lost_usd)} lost")
    if cost.unknown:
        parts.append("not all is known")
    return ", ".join(parts)


def _saving_lines(cost: RunBill) -> Iterator[str]:
    saved_usd, on_demand_usd = cost.bill.saved_usd, cost.bill.on_demand_usd
    if any(entry.host.is_spot for entry in cost.hosts):
        if saved_usd is None:
            yield "saved by spot: ? (an on-demand price is not known)"
        else:
            total = show_dollars(on_demand_usd)
            words = "saved by spot" if saved_usd >= 0 else "spot was dearer, with its reclaims"
            yield f"{words}: {show_dollars(abs(saved_usd))} against {total} on demand"
    if cost.address_usd:
        yield f"public IPv4 addresses, not part of the sum: {show_dollars(cost.address_usd)}"
    if cost.disk_usd:
        yield f"disks of the hosts (EBS), not part of the sum: {show_dollars(cost.disk_usd)}"


def _step_row(step: StepBill) -> tuple[str, ...]:
    seconds = step.seconds_per_command
    return (
        step.step,
        "?" if step.commands is None else f"{step.commands:,}",
        "?" if seconds is None else format_duration(seconds),
        show_dollars(step.cost.used_usd),
        show_dollars(step.cost.lost_usd),
        show_dollars(step.usd_per_command),
    )


def show_dollars(usd: float | None) -> str:
    if usd is None:
        return "?"
    return f"${usd:.4f}" if usd >= _SMALLEST_USD or not usd else f"<${_SMALLEST_USD}"
