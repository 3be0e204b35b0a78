"""What a run has used of hosts that cost money: the values of ``RunEngine.usage``. Pure.

An engine fills them in while hosts and jobs can be asked about, and stores them with the run,
since EC2 and ECS forget a host one hour after its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any

from batchyard.batch.jobs import JobState, Resources
from batchyard.errors import BatchyardError
from batchyard.quick_dataclasses import dataclass

if TYPE_CHECKING:
    from batchyard.engines.base import CommandDetail
    from batchyard.plan import Plan

_VERSION = 1
#: AWS Batch ends a host that has nothing to do within minutes. A host that lives on longer after
#: the run's last child works for others, or is held by the minimum size of its environment.
LINGER_S = 600.0


@dataclass(frozen=True, slots=True)
class PaidHost:
    """An EC2 instance that has run children of a run. Times are in seconds since 1970."""

    id: str
    #: the instance type; empty if it is not known
    type: str = ""
    zone: str = ""
    is_spot: bool = False
    #: 0 if it is not known
    launched_s: float = 0.0
    #: None while the host runs, and if nobody saw its end
    ended_s: float | None = None
    #: whether EC2 interrupted it, not the user or AWS Batch
    was_reclaimed: bool = False
    #: what it offers to jobs; None if it is not known
    capacity: Resources | None = None
    #: whether it has a public IPv4 address, which costs extra
    has_public_address: bool = False
    #: its EBS volumes, each with its type and GiB; empty if they are not known
    disks: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class HostUse:
    """An attempt of a child on a host."""

    #: id of the host
    host: str
    step: str
    #: number of the child in its step
    index: int
    attempt: int
    started_s: float
    #: None while the attempt runs
    ended_s: float | None
    requested: Resources
    #: False for an attempt whose work was not kept
    counts: bool = True
    #: seconds of an attempt that does not count, whose work was kept: commands that succeeded
    kept_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """The hosts of a run, and its attempts on them, as far as they were seen."""

    #: the AWS region of the hosts
    region: str
    hosts: tuple[PaidHost, ...] = ()
    uses: tuple[HostUse, ...] = ()
    #: when the hosts were looked at
    seen_s: float = 0.0
    #: whether nothing can change any more: the run is over, and so is its use of hosts
    is_final: bool = False
    #: sentences about what is not known
    unknown: tuple[str, ...] = ()
    #: prices of the hosts, as ``RunEngine.store_prices`` got them; empty if it did not
    prices: Mapping[str, Any] = field(default_factory=dict)


def group_uses(uses: Iterable[HostUse]) -> dict[str, list[HostUse]]:
    """Return id of a host -> the attempts on it."""
    by_host: dict[str, list[HostUse]] = {}
    for use in uses:
        by_host.setdefault(use.host, []).append(use)
    return by_host


def paid_until_s(host: PaidHost, uses: Iterable[HostUse], now_s: float) -> float:
    """Return when the run stops paying for a host: at its end, or LINGER_S after the last child.

    ``uses``: the attempts on the host. At most ``now_s``.
    """
    ends_s = [now_s if use.ended_s is None else use.ended_s for use in uses]
    last_s = max(ends_s, default=host.launched_s) + LINGER_S
    return min(now_s, last_s if host.ended_s is None else min(last_s, host.ended_s))


def add_kept_seconds(
    usage: Usage, plan: Plan, list_commands: Callable[[str], Iterable[CommandDetail]]
) -> Usage:
    """Return the usage with the time of commands that succeeded in attempts that did not.

    ``list_commands``: step -> its commands that have ended. It is called for steps with such
    attempts and with several commands in a child. Where it fails, attempts are lost as wholes.
    """
    kept_s: dict[tuple[str, int, int], float] = {}
    for step in {use.step for use in usage.uses if not use.counts}:
        job = plan.job(step)
        if not (job.has_several_commands or job.is_dynamic):
            continue
        with suppress(BatchyardError):
            for command in list_commands(step):
                if command.state is JobState.SUCCEEDED:
                    key = (step, command.index, command.child_attempt)
                    kept_s[key] = kept_s.get(key, 0.0) + (command.duration_s or 0.0)
    uses = tuple(
        use if use.counts else replace(use, kept_s=kept_s.get(_key(use), use.kept_s))
        for use in usage.uses
    )
    return replace(usage, uses=uses)


def merge(older: Usage, newer: Usage) -> Usage:
    """Return what both know. Where they differ, the newer one counts; an end is never lost."""
    hosts = {host.id: host for host in older.hosts}
    for host in newer.hosts:
        older_host = hosts.get(host.id)
        hosts[host.id] = host if older_host is None else _merge_host(older_host, host)
    uses = {_key(use): use for use in older.uses}
    for use in newer.uses:
        known_use = uses.get(_key(use))
        if known_use is None or use.ended_s is not None or known_use.ended_s is None:
            uses[_key(use)] = use
    return replace(
        newer,
        hosts=tuple(hosts.values()),
        uses=tuple(uses.values()),
        seen_s=max(older.seen_s, newer.seen_s),
        unknown=newer.unknown or older.unknown,
        prices=newer.prices or older.prices,
    )


def _merge_host(older: PaidHost, newer: PaidHost) -> PaidHost:
    return replace(
        newer,
        type=newer.type or older.type,
        zone=newer.zone or older.zone,
        is_spot=newer.is_spot or older.is_spot,
        launched_s=newer.launched_s or older.launched_s,
        ended_s=older.ended_s if newer.ended_s is None else newer.ended_s,
        was_reclaimed=newer.was_reclaimed or older.was_reclaimed,
        capacity=newer.capacity or older.capacity,
        has_public_address=newer.has_public_address or older.has_public_address,
        disks=newer.disks or older.disks,
    )


def _key(use: HostUse) -> tuple[str, int, int]:
    return use.step, use.index, use.attempt


# -- as JSON: an attempt is a short list, since there can be many --


def to_json(usage: Usage) -> dict[str, Any]:
    numbers = {host.id: number for number, host in enumerate(usage.hosts)}
    kinds = _number((use.step, use.requested) for use in usage.uses)
    return {
        "version": _VERSION,
        "region": usage.region,
        "seen_s": usage.seen_s,
        "is_final": usage.is_final,
        "unknown": list(usage.unknown),
        "hosts": [asdict(host) for host in usage.hosts],
        "kinds": [[step, *_amounts(requested)] for step, requested in kinds],
        "uses": [
            [
                *(numbers[use.host], kinds[use.step, use.requested], use.index, use.attempt),
                *(use.started_s, use.ended_s, int(use.counts), use.kept_s),
            ]
            for use in usage.uses
        ],
        "prices": dict(usage.prices),
    }


def from_json(document: Mapping[str, Any]) -> Usage:
    hosts = tuple(_host_from_json(entry) for entry in document["hosts"])
    kinds = [(kind[0], Resources(*kind[1:])) for kind in document["kinds"]]
    uses = []
    for number, kind, index, attempt, started_s, ended_s, counts, kept_s in document["uses"]:
        step, requested = kinds[kind]
        uses.append(
            HostUse(
                *(hosts[number].id, step, index, attempt, started_s, ended_s, requested),
                *(bool(counts), kept_s),
            )
        )
    return Usage(
        region=document["region"],
        hosts=hosts,
        uses=tuple(uses),
        seen_s=document["seen_s"],
        is_final=document["is_final"],
        unknown=tuple(document["unknown"]),
        prices=document["prices"],
    )


def _host_from_json(fields: Mapping[str, Any]) -> PaidHost:
    capacity = fields["capacity"]
    return PaidHost(
        **{
            **fields,
            "capacity": None if capacity is None else Resources(**capacity),
            "disks": tuple((kind, gib) for kind, gib in fields.get("disks", ())),
        }
    )


def _number(
    kinds: Iterable[tuple[str, Resources]],
) -> dict[tuple[str, Resources], int]:
    return {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}


def _amounts(requested: Resources) -> Sequence[int]:
    return requested.vcpus, requested.memory_mib, requested.gpus
