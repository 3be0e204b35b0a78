"""Whether a host that has joined the cluster of an UNMANAGED environment is large enough for the job. Pure.

AWS Batch launches none there: what counts is what the hosts registered. The questions are asked in turn of the hosts
that are left, as of instance types: GPUs, vCPUs, memory. That none is large enough does not show that the job can never
start: a larger one may join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from batchyard.doctor.checks.common import asks, environments, named, place_of
from batchyard.doctor.checks.kinds import (
    NO_GPUS,
    NOT_ENOUGH_GPUS,
    NOT_ENOUGH_MEMORY,
    NOT_ENOUGH_VCPUS,
)
from batchyard.doctor.facts import (
    MOST_HOSTS,
    CannotSee,
    Environment,
    Facts,
    Host,
    Job,
    Missing,
    known,
)
from batchyard.doctor.finding import Finding, Kind
from batchyard.units import counted

MORE_THAN_ANY = "AWS says that the job asks for more than any instance has"
_EMULATED = "or, where that is `batchyard emulate`: start it with more --cpus, --memory or --gpus"
#: below what `--fix` takes for sure
_UNLESS_ONE_JOINS = 75
_MOST_SHOWN = 4


def own(facts: Facts) -> list[Environment]:
    return [e for e in environments(facts) if not e.is_managed]


def is_held(job: Job, these: Iterable[Environment]) -> bool:
    """Whether a host that can be seen is large enough."""
    return any(_holds(host, job) for host in _seen(_enabled(these)))


def too_small(job: Job, these: Iterable[Environment]) -> list[Finding]:
    """Of a job that none holds; nothing where there are no hosts. Ends the check where there may be others."""
    enabled = _enabled(these)
    for environment in enabled:
        if len(known(environment.hosts)) >= MOST_HOSTS:
            raise CannotSee(
                Missing(f"only the first {MOST_HOSTS} hosts of {environment.name} were looked at")
            )
    hosts = _seen(enabled)
    if not hosts:
        return []
    lack = _lack(job, hosts)
    names = named(e.name for e in enabled)
    return [
        Finding(
            lack.kind,
            f"no host in the cluster of {names} registers the {lack.asked} that the job asks for",
            (asks(job), *_registered(hosts, lack.amount)),
            (f"let a larger instance join the cluster of {names}", lack.instead, _EMULATED),
            place_of(job),
            likelihood=_UNLESS_ONE_JOINS,
        )
    ]


def said_by_aws(job: Job, these: Sequence[Environment]) -> Finding:
    """AWS's word counts, whatever the hosts that can be seen have."""
    hosts = _seen(these)
    lack = _lack(job, hosts)
    return Finding(
        lack.kind,
        MORE_THAN_ANY,
        (job.status_reason, asks(job), *_registered(hosts, lack.amount)),
        (f"let a larger instance join the cluster of {these[0].name}, or ask for less", _EMULATED),
        place_of(job),
        likelihood=100,
    )


def where(facts: Facts) -> tuple[str, ...]:
    """For a shape that is asked about: the hosts that can hold it, an environment a line."""
    job = facts.job
    if not isinstance(job, Job) or job.job_id or isinstance(facts.environments, Missing):
        return ()
    holding = [
        (e.name, [_name(host) for host in _seen([e]) if _tells(host) and _holds(host, job)])
        for e in _enabled(own(facts))
    ]
    return tuple(f"{place_of(job)} fits {name}: {named(hosts)}" for name, hosts in holding if hosts)


def _enabled(these: Iterable[Environment]) -> list[Environment]:
    return [e for e in these if e.state == "ENABLED"]


def _seen(these: Iterable[Environment]) -> list[Host]:
    return [host for e in these if isinstance(e.hosts, tuple) for host in e.hosts]


def _tells(host: Host) -> bool:
    """One that tells nothing of itself is not held against anybody."""
    return bool(host.vcpus or host.memory_mib)


def _holds(host: Host, job: Job) -> bool:
    is_enough = (
        host.gpus >= job.gpus and host.vcpus >= job.vcpus and host.memory_mib >= job.memory_mib
    )
    return is_enough or not _tells(host)


@dataclass(frozen=True, slots=True)
class _Lack:
    """Of what no host has enough."""

    kind: Kind
    asked: str
    instead: str
    amount: Callable[[Host], float]


def _lack(job: Job, hosts: Sequence[Host]) -> _Lack:
    gpus = counted(job.gpus, "GPU")
    most = max((h.gpus for h in hosts), default=0)
    if job.gpus > most:
        instead = (
            f"or ask for at most {counted(most, 'GPU')}"
            if most
            else "or submit to a queue whose hosts have GPUs"
        )
        return _Lack(
            NOT_ENOUGH_GPUS if most or not hosts else NO_GPUS, gpus, instead, lambda h: h.gpus
        )
    left = [h for h in hosts if h.gpus >= job.gpus]
    most = max((h.vcpus for h in left), default=0)
    if job.vcpus > most and hosts:
        beside = f" beside {gpus}" if len(left) < len(hosts) else ""
        return _Lack(
            NOT_ENOUGH_VCPUS,
            f"{job.vcpus:g} vCPUs{beside}",
            f"or ask for at most {most} vCPUs",
            lambda h: h.vcpus,
        )
    left = [h for h in left if h.vcpus >= job.vcpus]
    most = max((h.memory_mib for h in left), default=0)
    others = f"{job.vcpus:g} vCPUs" + (f" and {gpus}" if job.gpus else "")
    beside = f" beside {others}" if len(left) < len(hosts) else ""
    asked = f"{job.memory_mib:,} MiB{beside}"
    return _Lack(
        NOT_ENOUGH_MEMORY, asked, f"or ask for at most {most:,} MiB{beside}", lambda h: h.memory_mib
    )


def _registered(hosts: Iterable[Host], amount: Callable[[Host], float]) -> list[str]:
    """Those with the most first."""
    in_order = sorted(hosts, key=lambda h: (-amount(h), -h.memory_mib, h.instance_id))
    shown = [
        f"{_name(h)} registers {h.vcpus} vCPUs, {h.memory_mib:,} MiB, {h.gpus} GPUs"
        for h in in_order[:_MOST_SHOWN]
    ]
    more = len(in_order) - len(shown)
    return [*shown, f"and {more} more with no more of it"] if more else shown


def _name(host: Host) -> str:
    return f"{host.instance_id} ({host.type})" if host.type else host.instance_id
