"""Whether a host in the cluster of an UNMANAGED environment is large enough for the job.

AWS Batch launches no instances there, so the resources that the hosts registered decide. A
larger host may join later: the findings do not show that the job can never start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from batchyard.doctor.checks.base import (
    MAX_LISTED,
    environments_of,
    join_names,
    place_of_job,
    show_request,
)
from batchyard.doctor.checks.fit.kinds import (
    NO_GPUS,
    NOT_ENOUGH_GPUS,
    NOT_ENOUGH_MEMORY,
    NOT_ENOUGH_VCPUS,
)
from batchyard.doctor.facts import (
    MAX_HOSTS,
    Environment,
    Facts,
    Host,
    Job,
    Missing,
    MissingFactError,
    require,
)
from batchyard.doctor.finding import Finding, Kind
from batchyard.units import pluralize

LARGER_THAN_ANY = "AWS says that the job asks for more than any instance has"
_EMULATOR_HINT = (
    "or, where that is `batchyard emulate`: start it with more --cpus, --memory or --gpus"
)
#: lower than the likelihood at which `--fix` offers to cancel a job
_UNCERTAIN_LIKELIHOOD = 75


def unmanaged_environments(facts: Facts) -> list[Environment]:
    return [environment for environment in environments_of(facts) if not environment.is_managed]


def has_fitting_host(job: Job, environments: Iterable[Environment]) -> bool:
    return any(_fits(host, job) for host in _hosts_of(_select_enabled(environments)))


def find_shortage(job: Job, environments: Iterable[Environment]) -> list[Finding]:
    """Return what no host has enough of, for a job that fits on none; empty without hosts.

    Raises MissingFactError where only some of the hosts were described.
    """
    enabled = _select_enabled(environments)
    for environment in enabled:
        if len(require(environment.hosts)) >= MAX_HOSTS:
            raise MissingFactError(
                Missing(f"only the first {MAX_HOSTS} hosts of {environment.name} were looked at")
            )
    hosts = _hosts_of(enabled)
    if not hosts:
        return []
    shortage = _shortage(job, hosts)
    names = join_names(environment.name for environment in enabled)
    return [
        Finding(
            shortage.kind,
            f"no host in the cluster of {names} registers the {shortage.request} "
            "that the job asks for",
            (show_request(job), *_registered_resources(hosts, shortage.amount_of)),
            (
                f"let a larger instance join the cluster of {names}",
                shortage.alternative,
                _EMULATOR_HINT,
            ),
            place_of_job(job),
            likelihood=_UNCERTAIN_LIKELIHOOD,
        )
    ]


def shortage_by_status_reason(job: Job, environments: Sequence[Environment]) -> Finding:
    """Return the finding for a job that AWS Batch itself calls too large."""
    hosts = _hosts_of(environments)
    shortage = _shortage(job, hosts)
    return Finding(
        shortage.kind,
        LARGER_THAN_ANY,
        (
            job.status_reason,
            show_request(job),
            *_registered_resources(hosts, shortage.amount_of),
        ),
        (
            f"let a larger instance join the cluster of {environments[0].name}, or ask for less",
            _EMULATOR_HINT,
        ),
        place_of_job(job),
        likelihood=100,
    )


def describe_fitting_hosts(job: Job, facts: Facts) -> list[str]:
    """Return a line for each environment that has hosts on which the requested shape fits."""
    lines = []
    for environment in _select_enabled(unmanaged_environments(facts)):
        names = [
            _name(host)
            for host in _hosts_of([environment])
            if _has_registered_resources(host) and _fits(host, job)
        ]
        if names:
            lines.append(f"{place_of_job(job)} fits {environment.name}: {join_names(names)}")
    return lines


def _select_enabled(environments: Iterable[Environment]) -> list[Environment]:
    return [environment for environment in environments if environment.state == "ENABLED"]


def _hosts_of(environments: Iterable[Environment]) -> list[Host]:
    return [host for e in environments if isinstance(e.hosts, tuple) for host in e.hosts]


def _has_registered_resources(host: Host) -> bool:
    return bool(host.vcpus or host.memory_mib)


def _fits(host: Host, job: Job) -> bool:
    """A host whose registered resources are unknown counts as large enough."""
    if not _has_registered_resources(host):
        return True
    return host.gpus >= job.gpus and host.vcpus >= job.vcpus and host.memory_mib >= job.memory_mib


@dataclass(frozen=True, slots=True)
class _Shortage:
    """The resource that no host has enough of."""

    kind: Kind
    #: what the job requests, like "8 vCPUs beside 1 GPU"
    request: str
    #: what to request instead
    alternative: str
    amount_of: Callable[[Host], float]


def _shortage(job: Job, hosts: Sequence[Host]) -> _Shortage:
    gpus = pluralize(job.gpus, "GPU")
    max_gpus = max((h.gpus for h in hosts), default=0)
    if job.gpus > max_gpus:
        return _gpu_shortage(gpus, max_gpus, bool(hosts))
    with_gpus = [h for h in hosts if h.gpus >= job.gpus]
    max_vcpus = max((h.vcpus for h in with_gpus), default=0)
    if job.vcpus > max_vcpus and hosts:
        beside = f" beside {gpus}" if len(with_gpus) < len(hosts) else ""
        return _vcpu_shortage(f"{job.vcpus:g} vCPUs{beside}", max_vcpus)
    with_vcpus = [h for h in with_gpus if h.vcpus >= job.vcpus]
    return _memory_shortage(job, with_vcpus, is_selection=len(with_vcpus) < len(hosts))


def _vcpu_shortage(request: str, max_vcpus: int) -> _Shortage:
    alternative = f"or ask for at most {max_vcpus} vCPUs"
    return _Shortage(NOT_ENOUGH_VCPUS, request, alternative, lambda h: h.vcpus)


def _memory_shortage(job: Job, hosts: Sequence[Host], is_selection: bool) -> _Shortage:
    """``is_selection``: some hosts were left out because they lack vCPUs or GPUs."""
    gpus = f" and {pluralize(job.gpus, 'GPU')}" if job.gpus else ""
    beside = f" beside {job.vcpus:g} vCPUs{gpus}" if is_selection else ""
    max_memory_mib = max((h.memory_mib for h in hosts), default=0)
    return _Shortage(
        NOT_ENOUGH_MEMORY,
        f"{job.memory_mib:,} MiB{beside}",
        f"or ask for at most {max_memory_mib:,} MiB{beside}",
        lambda h: h.memory_mib,
    )


def _gpu_shortage(request: str, max_gpus: int, has_hosts: bool) -> _Shortage:
    kind = NOT_ENOUGH_GPUS if max_gpus or not has_hosts else NO_GPUS
    if max_gpus:
        alternative = f"or ask for at most {pluralize(max_gpus, 'GPU')}"
    else:
        alternative = "or submit to a queue whose hosts have GPUs"
    return _Shortage(kind, request, alternative, lambda h: h.gpus)


def _registered_resources(hosts: Iterable[Host], amount_of: Callable[[Host], float]) -> list[str]:
    """Return a line for each of the largest hosts, largest first."""
    ordered = sorted(hosts, key=lambda h: (-amount_of(h), -h.memory_mib, h.instance_id))
    lines = [
        f"{_name(h)} registers {h.vcpus} vCPUs, {h.memory_mib:,} MiB, {h.gpus} GPUs"
        for h in ordered[:MAX_LISTED]
    ]
    hidden = len(ordered) - len(lines)
    return [*lines, f"and {hidden} more with no more of it"] if hidden else lines


def _name(host: Host) -> str:
    return f"{host.instance_id} ({host.type})" if host.type else host.instance_id
