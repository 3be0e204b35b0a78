"""Draw the cost of a run: a bar of used, idle and lost dollars, its steps, and its hosts. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from batchyard.report.amounts import NONE, format_count, format_duration, format_share, format_time
from batchyard.report.markup import Markup, tag
from batchyard.report.tables import plain_table

if TYPE_CHECKING:
    from batchyard.cost.run_bill import RunBill, StepBill

_SMALLEST_USD = 0.0001
_BAR_PX = 1000
_STEP_HEADINGS = ("Step", "Commands", "Time of one", "Used", "Lost", "Cost of one")
_HOST_HEADINGS = ("Type", "Zone", "Market", "Hosts", "Time", "Cost")


def cost_section(cost: RunBill | None) -> Markup:
    """Return the section about the cost; nothing for a run that costs nothing."""
    if cost is None:
        return Markup()
    return tag(
        "section",
        tag("h2", "Cost"),
        tag("p", _lead(cost)),
        _draw_bar(cost),
        tag("h3", "Steps"),
        plain_table(_STEP_HEADINGS, [_step_row(step) for step in cost.steps], 1),
        tag("h3", "Hosts"),
        plain_table(_HOST_HEADINGS, list(_host_rows(cost)), 3),
        tag("p", " ".join(_notes(cost)), class_="note"),
    )


def _lead(cost: RunBill) -> str:
    bill = cost.bill
    when = "" if cost.is_final else f" until {format_time(round(cost.until_s * 1000))}"
    sentences = [f"{format_usd(bill.paid_usd)} paid{when}."]
    if bill.efficiency is not None:
        sentences.append(f"{format_share(bill.efficiency)} of it was used by attempts that count.")
    if bill.saved_usd is not None and any(entry.host.is_spot for entry in cost.hosts):
        on_demand = format_usd(bill.on_demand_usd)
        amount = format_usd(abs(bill.saved_usd))
        if bill.saved_usd >= 0:
            sentences.append(f"Spot has saved {amount} of {on_demand} on demand.")
        else:
            sentences.append(f"With its reclaims, spot was {amount} dearer than on demand.")
    return " ".join(sentences)


def _draw_bar(cost: RunBill) -> Markup:
    """Return a bar whose parts are used, idle and lost dollars, with a legend."""
    bill = cost.bill
    if not bill.paid_usd:
        return Markup()
    parts = (("used", bill.used_usd), ("idle", bill.idle_usd), ("lost", bill.lost_usd))
    # Attributes of SVG, not a style: the live page forbids styles that are not in a file.
    shapes, x = [], 0.0
    for name, usd in parts:
        width = _BAR_PX * usd / bill.paid_usd
        shapes.append(tag("rect", x=x, y=0, width=width, height=18, class_=name))
        x += width
    legend = [tag("li", tag("i", class_=name), f"{name} {format_usd(usd)}") for name, usd in parts]
    return tag(
        "div",
        tag(
            "svg",
            shapes,
            viewBox=f"0 0 {_BAR_PX} 18",
            preserveAspectRatio="none",
            class_="shares",
            role="img",
            aria_label="used, idle and lost dollars",
        ),
        tag("ul", legend, class_="legend"),
        class_="money",
    )


def _step_row(step: StepBill) -> tuple[str, ...]:
    return (
        step.step,
        NONE if step.commands is None else format_count(step.commands),
        format_duration(step.seconds_per_command),
        format_usd(step.cost.used_usd),
        format_usd(step.cost.lost_usd),
        format_usd(step.usd_per_command),
    )


def _host_rows(cost: RunBill) -> Iterator[tuple[str, ...]]:
    for group in cost.host_groups():
        yield (
            group.host.type or "not known",
            group.host.zone or NONE,
            "spot" if group.host.is_spot else "on-demand",
            format_count(group.count),
            format_duration(group.seconds),
            format_usd(group.usd),
        )


def _notes(cost: RunBill) -> Iterator[str]:
    yield (
        "A child pays for the largest of its shares of a host's GPUs, vCPUs and memory. Idle are"
        " boot, pulls of images, holes, and the time until a host ends. Lost are attempts that did"
        " not count; a spot host that EC2 takes in its first hour costs nothing."
    )
    if cost.address_usd:
        yield f"Public IPv4 addresses cost {format_usd(cost.address_usd)} more."
    if cost.disk_usd:
        yield f"Disks of the hosts (EBS) cost {format_usd(cost.disk_usd)} more."
    for sentence in cost.unknown:
        yield f"Not known: {sentence}."
    yield f"Not counted: {', '.join(cost.not_counted)}."
    for sentence in cost.sources:
        yield f"{sentence[:1].upper()}{sentence[1:]}."


def format_usd(usd: float | None) -> str:
    """Return dollars with four digits behind the point."""
    if usd is None:
        return NONE
    return f"${usd:,.4f}" if usd >= _SMALLEST_USD or not usd else f"<${_SMALLEST_USD}"
