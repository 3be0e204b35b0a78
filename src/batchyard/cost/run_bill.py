"""The bill of a run: what the hosts that it used have cost until now.

``bill_so_far`` is the one place where this is asked: for `cost`, `status`, `report` and caps.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

from batchyard import ec2_types
from batchyard.batch.jobs import Resources
from batchyard.cost import host_prices, run_cost
from batchyard.cost.bill import Bill, Instance, StepCost, Use, make_bill, price_disk
from batchyard.cost.host_prices import HostPrices
from batchyard.cost.market import AwsMarket, PastMarket
from batchyard.cost.run_cost import RunCost
from batchyard.ec2_prices import load_prices
from batchyard.engines.base import RunEngine, RunRecord
from batchyard.engines.usage import HostUse, PaidHost, Usage, group_uses, paid_until_s
from batchyard.plan import Plan, PlannedJob
from batchyard.units import pluralize

NOT_COUNTED = (
    "NAT gateways and network traffic",
    "S3, CloudWatch Logs and other services",
)
#: A host that was launched longer than this before the run began was launched for others.
_CLOCK_SKEW_S = 60.0
_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class StepBill:
    step: str
    cost: StepCost
    #: seconds of attempts that counted, and of the others
    used_s: float
    lost_s: float
    #: commands of children that succeeded; None if the number is not known
    commands: int | None

    @property
    def seconds_per_command(self) -> float | None:
        return self.used_s / self.commands if self.commands else None

    @property
    def usd_per_command(self) -> float | None:
        """Return what an attempt that counted cost, for each command."""
        return self.cost.used_usd / self.commands if self.commands else None

    def to_json(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "used_usd": self.cost.used_usd,
            "lost_usd": self.cost.lost_usd,
            "used_s": self.used_s,
            "lost_s": self.lost_s,
            "commands": self.commands,
            "seconds_per_command": self.seconds_per_command,
            "usd_per_command": self.usd_per_command,
        }


@dataclass(frozen=True, slots=True)
class HostBill:
    """A host, with the time that the run pays for."""

    host: PaidHost
    from_s: float
    until_s: float
    #: None if no price is known
    usd: float | None

    def to_json(self) -> dict[str, Any]:
        host = self.host
        return {
            "id": host.id,
            "type": host.type or None,
            "zone": host.zone or None,
            "market": "spot" if host.is_spot else "on-demand",
            "launched_s": host.launched_s or None,
            "ended_s": host.ended_s,
            "was_reclaimed": host.was_reclaimed,
            "paid_s": max(0.0, self.until_s - self.from_s),
            "usd": self.usd,
        }


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Hosts of the same type, zone and market."""

    #: one of them
    host: PaidHost
    count: int
    #: that the run pays for, of all of them
    seconds: float
    #: None if no price is known
    usd: float | None


@dataclass(frozen=True, slots=True)
class RunBill:
    """What a run has cost until a time, in US dollars, as far as it is known."""

    run_id: str
    bill: Bill
    steps: tuple[StepBill, ...]
    hosts: tuple[HostBill, ...]
    #: what public IPv4 addresses of the hosts cost, which is not part of ``bill``
    address_usd: float
    #: what the EBS volumes of the hosts cost, as far as they are known; not part of ``bill``
    disk_usd: float
    #: the time up to which the run is billed
    until_s: float
    #: whether nothing can change any more
    is_final: bool
    #: sentences about hosts and attempts that are not part of the bill, or are estimated
    unknown: tuple[str, ...]
    #: sentences about where the prices come from
    sources: tuple[str, ...]
    not_counted: tuple[str, ...] = NOT_COUNTED

    def host_groups(self) -> list[HostGroup]:
        """Return the hosts by type, zone and market."""
        groups: dict[tuple[str, str, bool], list[HostBill]] = {}
        for entry in self.hosts:
            host = entry.host
            groups.setdefault((host.type, host.zone, host.is_spot), []).append(entry)
        return [_sum_group(groups[key]) for key in sorted(groups)]

    @property
    def paid_usd(self) -> float:
        return self.bill.paid_usd

    @property
    def used_usd(self) -> float:
        return self.bill.used_usd

    @property
    def lost_usd(self) -> float:
        return self.bill.lost_usd

    def to_json(self) -> dict[str, Any]:
        bill = self.bill
        return {
            "run": self.run_id,
            "paid_usd": bill.paid_usd,
            "used_usd": bill.used_usd,
            "idle_usd": bill.idle_usd,
            "lost_usd": bill.lost_usd,
            "efficiency": bill.efficiency,
            "on_demand_usd": bill.on_demand_usd,
            "saved_usd": bill.saved_usd,
            "address_usd": self.address_usd,
            "disk_usd": self.disk_usd,
            "until_s": self.until_s,
            "is_final": self.is_final,
            "steps": [step.to_json() for step in self.steps],
            "hosts": [host.to_json() for host in self.hosts],
            "unknown": list(self.unknown),
            "not_counted": list(self.not_counted),
            "sources": list(self.sources),
        }


def _sum_group(group: Sequence[HostBill]) -> HostGroup:
    amounts = [entry.usd for entry in group]
    usd = None if None in amounts else sum(amount or 0.0 for amount in amounts)
    seconds = sum(entry.until_s - entry.from_s for entry in group)
    return HostGroup(group[0].host, len(group), seconds, usd)


def bill_so_far(
    record: RunRecord,
    engine: RunEngine,
    market: PastMarket | None = None,
    *,
    asks: bool = True,
    asks_prices: bool | None = None,
    now_s: float | None = None,
) -> RunBill | None:
    """Return what the run has cost until now; None for a run that costs nothing.

    ``market``: where prices are asked for; None for AWS, with region and profile of the run's
    environment. ``asks`` False: no request is sent, and what this machine has stored is billed up
    to the time of the last look; None if nothing is stored. ``asks_prices``: the same for the
    prices alone; None for the value of ``asks``.
    """
    usage = engine.usage(asks=asks)
    if usage is None:
        return None
    if not (asks if asks_prices is None else asks_prices):
        stored_prices = host_prices.from_json(usage.prices)
        return make_run_bill(record, usage, stored_prices) if usage.prices else None
    now_s = time.time() if now_s is None else now_s
    prices = host_prices.find_host_prices(usage, market or market_of(engine), now_s)
    if prices.to_json() != usage.prices:
        engine.store_prices(prices.to_json())
    return make_run_bill(record, usage, prices)


def cost_of_run(record: RunRecord, market: PastMarket | None = None) -> RunBill | RunCost:
    """Return the bill of a run, or for a run that costs nothing what it would have cost.

    ``market``: as in ``bill_so_far``; for a run that costs nothing, None is AWS's configuration.
    """
    engine = record.open()
    try:
        bill = bill_so_far(record, engine, market)
    finally:
        engine.close()
    return bill or run_cost.cost_of_run(record, market or AwsMarket())


def market_of(engine: RunEngine) -> AwsMarket:
    """Return AWS's prices in the region of the run's environment."""
    environment = engine.setup().environment
    if environment is None:
        return AwsMarket()
    return AwsMarket(environment.region, environment.profile)


def make_run_bill(record: RunRecord, usage: Usage, prices: HostPrices) -> RunBill:
    """Return the bill up to the time at which the hosts were looked at. Pure."""
    created_s = record.created_ms / 1000
    by_host = group_uses(usage.uses)
    spans = {
        host.id: _find_span(host, by_host.get(host.id, ()), created_s, usage.seen_s)
        for host in usage.hosts
    }
    instances = [_to_instance(host, spans[host.id], prices) for host in usage.hosts]
    bill = make_bill(instances, _split_uses(usage))
    hosts = []
    for host, instance in zip(usage.hosts, instances, strict=True):
        paid_usd = make_bill([instance], ()).paid_usd if instance.prices else None
        hosts.append(HostBill(host, *spans[host.id], paid_usd))
    return RunBill(
        record.run_id,
        bill,
        tuple(_bill_steps(record.plan, usage, bill)),
        tuple(hosts),
        _price_addresses(hosts),
        _price_disks(hosts),
        usage.seen_s,
        usage.is_final,
        tuple(_list_unknown(usage, bill)),
        (*prices.sources, *_list_disk_sources(usage)),
        (*_list_unpriced_disks(usage.hosts), *NOT_COUNTED),
    )


def _find_span(
    host: PaidHost, uses: Sequence[HostUse], created_s: float, seen_s: float
) -> tuple[float, float]:
    """Return from when until when the run pays for a host.

    A host that was there before the run is paid for from the run's first child on it.
    """
    from_s = host.launched_s
    if host.launched_s < created_s - _CLOCK_SKEW_S:
        from_s = min((use.started_s for use in uses), default=seen_s)
    return from_s, max(from_s, paid_until_s(host, uses, seen_s))


def _to_instance(host: PaidHost, span: tuple[float, float], prices: HostPrices) -> Instance:
    capacity = host.capacity or ec2_types.registered_resources(host.type)
    return Instance(
        host.id,
        capacity or Resources(1, 1),
        *span,
        # Without its size, nobody knows which part of the host a child used.
        prices.of_host(host) if capacity else (),
        is_spot=host.is_spot,
        was_reclaimed=host.was_reclaimed,
        on_demand_usd_h=prices.on_demand.get(host.type),
        launched_s=host.launched_s or None,
        real_end_s=host.ended_s,
    )


def _split_uses(usage: Usage) -> Iterator[Use]:
    """Return the attempts; one that failed is split into what was kept and what was lost."""
    for use in usage.uses:
        ended_s = usage.seen_s if use.ended_s is None else use.ended_s
        split_s = ended_s if use.counts else min(ended_s, use.started_s + use.kept_s)
        for start_s, end_s, counts in (
            (use.started_s, split_s, True),
            (split_s, ended_s, False),
        ):
            if end_s > start_s:
                yield Use(use.host, use.step, start_s, end_s, use.requested, counts)


def _bill_steps(plan: Plan, usage: Usage, bill: Bill) -> Iterator[StepBill]:
    for job in plan.jobs:
        uses = [use for use in usage.uses if use.step == job.step]
        used_s = lost_s = 0.0
        for part in _split_uses(Usage(usage.region, uses=tuple(uses), seen_s=usage.seen_s)):
            if part.counts:
                used_s += part.ended_s - part.started_s
            else:
                lost_s += part.ended_s - part.started_s
        succeeded = {use.index for use in uses if use.counts and use.ended_s is not None}
        commands = _count_commands(job, succeeded)
        yield StepBill(job.step, bill.by_step.get(job.step, StepCost()), used_s, lost_s, commands)


def _count_commands(job: PlannedJob, children: Set[int]) -> int | None:
    """Return the number of commands of these children; None if it is not known."""
    if job.is_dynamic:
        return job.command_count if len(children) == job.size else None
    if job.has_several_commands:
        return sum(len(job.commands_of_index(index)) for index in children)
    return len(children)


def _price_addresses(hosts: Iterable[HostBill]) -> float:
    usd_h = load_prices().network_usd_h["public_ipv4"]
    seconds = sum(entry.until_s - entry.from_s for entry in hosts if entry.host.has_public_address)
    return usd_h * seconds / _HOUR_S


def _price_disks(hosts: Iterable[HostBill]) -> float:
    listed = load_prices().disk_usd_gib_month
    return sum(
        price_disk(gib, listed[kind], entry.from_s, entry.until_s)
        for entry in hosts
        for kind, gib in entry.host.disks
        if kind in listed
    )


def _list_disk_sources(usage: Usage) -> Iterator[str]:
    if any(host.disks for host in usage.hosts):
        prices = load_prices()
        elsewhere = f", not of {usage.region}" if usage.region != prices.region else ""
        yield f"prices of disks: those of {prices.region}{elsewhere}"


def _list_unpriced_disks(hosts: Iterable[PaidHost]) -> Iterator[str]:
    """Yield which disks are not counted: their sizes, or prices, are not known."""
    listed = load_prices().disk_usd_gib_month
    missing = sum(
        not host.disks or any(kind not in listed for kind, _ in host.disks) for host in hosts
    )
    if missing:
        yield f"disks of {pluralize(missing, 'host')}"


def _list_unknown(usage: Usage, bill: Bill) -> Iterator[str]:
    yield from usage.unknown
    unlaunched = sum(not host.launched_s for host in usage.hosts)
    if unlaunched:
        yield f"the launch of {pluralize(unlaunched, 'host')} is not known: boot is not counted"
    if usage.is_final:
        unended = sum(host.ended_s is None for host in usage.hosts)
        if unended:
            yield (
                f"the end of {pluralize(unended, 'host')} was not seen: ten minutes after the"
                " last child are counted"
            )
    if bill.unpriced:
        yield f"no price is known for {pluralize(len(bill.unpriced), 'host')}: not counted"
