"""Whether an instance type that AWS Batch may launch is large enough for the job."""

from __future__ import annotations

from collections.abc import Sequence

from batchyard import ec2_types
from batchyard.batch.hosts import RESERVED_MIB
from batchyard.doctor.checks.base import (
    join_names,
    place_of,
    place_of_job,
    update_resources_command,
)
from batchyard.doctor.checks.fit.candidates import Candidate, select_fitting
from batchyard.doctor.checks.fit.kinds import (
    MAX_VCPUS_TOO_SMALL,
    NO_GPUS,
    NOT_ENOUGH_GPUS,
    NOT_ENOUGH_MEMORY,
    NOT_ENOUGH_VCPUS,
)
from batchyard.doctor.facts import Environment, Job
from batchyard.doctor.finding import Finding, Kind
from batchyard.units import format_memory

#: the likelihood of BY015 where the registered memory is an estimate
_ESTIMATE_LIKELIHOOD = 70


def find_shortage(job: Job, candidates: Sequence[Candidate]) -> Finding | None:
    """Return what no candidate has enough of; None where the job fits on one of them.

    There must be at least one candidate.
    """
    with_gpus = [c for c in candidates if c.type.gpus >= job.gpus]
    if not with_gpus:
        return _too_few_gpus(job, candidates)
    with_vcpus = [c for c in with_gpus if c.type.vcpus >= job.vcpus]
    if not with_vcpus:
        largest = max(with_gpus, key=lambda c: c.type.vcpus)
        maximum = f"{largest.type.name} has {largest.type.vcpus}, the most"
        return _too_few(NOT_ENOUGH_VCPUS, job, f"{job.vcpus:g} vCPUs", maximum, candidates)
    with_memory = [c for c in with_vcpus if c.memory_mib >= job.memory_mib]
    if not with_memory:
        return _too_little_memory(job, max(with_vcpus, key=lambda c: c.memory_mib))
    if all(c.type.vcpus > c.environment.max_vcpus for c in with_memory):
        smallest = min(with_memory, key=lambda c: c.type.vcpus)
        return max_vcpus_too_small(smallest, "that the job fits on")
    return None


def max_vcpus_too_small(smallest: Candidate, description: str) -> Finding:
    """``description`` completes "the smallest instance"."""
    environment = smallest.environment
    return Finding(
        MAX_VCPUS_TOO_SMALL,
        f"maxvCpus of {environment.name} is smaller than the smallest instance {description}",
        (
            f"maxvCpus {environment.max_vcpus}; "
            f"{smallest.type.name} has {smallest.type.vcpus} vCPUs",
        ),
        (update_resources_command(environment, f"maxvCpus={smallest.type.vcpus}"),),
        place_of(environment),
    )


def _too_few_gpus(job: Job, candidates: Sequence[Candidate]) -> Finding:
    largest = max(candidates, key=lambda c: c.type.gpus)
    if not largest.type.gpus:
        return _no_gpus(job, candidates)
    maximum = f"{largest.type.name} has {largest.type.gpus}, the most of all"
    return _too_few(NOT_ENOUGH_GPUS, job, f"{job.gpus} GPUs", maximum, candidates)


def _no_gpus(job: Job, candidates: Sequence[Candidate]) -> Finding:
    names = join_names(
        name for c in candidates for name in (c.environment.instance_types or ("optimal",))
    )
    environment = candidates[0].environment
    return Finding(
        NO_GPUS,
        "the job asks for GPUs and no compute environment of its queue has any",
        (
            f"requests {job.gpus} GPU{'s' if job.gpus > 1 else ''}",
            f"instance types: {names}, 0 GPUs",
        ),
        (
            update_resources_command(environment, "instanceTypes=g5.xlarge,g5.2xlarge,g6.xlarge"),
            "or submit to a queue whose environment has GPUs: `optimal` never has",
        ),
        place_of_job(job),
    )


def _too_few(
    kind: Kind, job: Job, request: str, maximum: str, candidates: Sequence[Candidate]
) -> Finding:
    return Finding(
        kind,
        f"no instance type of the queue is large enough: the job asks for {request}",
        (f"requests {request}; {maximum}", f"types: {join_names(c.type.name for c in candidates)}"),
        (_add_larger_type(job, candidates[0].environment), "or ask for less"),
        place_of_job(job),
    )


def _too_little_memory(job: Job, largest: Candidate) -> Finding:
    nominal_mib = largest.type.memory_mib
    request = _show_requested_memory(job.memory_mib)
    reason = (
        "; a host registers less memory than its type has" if job.memory_mib <= nominal_mib else ""
    )
    is_certain = bool(largest.registered_mib) or job.memory_mib > nominal_mib - RESERVED_MIB
    return Finding(
        NOT_ENOUGH_MEMORY,
        f"no instance type of the queue registers the {request} that the job asks for{reason}",
        (
            f"requests {job.memory_mib:,} MiB ({request}); {largest.memory_text}",
            f"its nominal size is {nominal_mib:,} MiB",
        ),
        (
            f"ask for at most {int(nominal_mib * 0.9):,} MiB (90 %) to fit {largest.type.name}",
            _add_larger_type(job, largest.environment),
        ),
        place_of_job(job),
        likelihood=-1 if is_certain else _ESTIMATE_LIKELIHOOD,
    )


def _show_requested_memory(memory_mib: int) -> str:
    """Return whole GiB as the user wrote them: 2000GiB, not 1.95TiB."""
    is_whole_gib = memory_mib % 1024 == 0 and memory_mib % 1024**2
    return f"{memory_mib // 1024}GiB" if is_whole_gib else format_memory(memory_mib)


def _add_larger_type(job: Job, environment: Environment) -> str:
    """Return the command that adds the smallest fitting type of a family that the environment has.

    Where no such type is known, the command has TYPE in its place.
    """
    families = {ec2_types.family_of(name) for name in environment.instance_types}
    members = [
        Candidate(environment, t)
        for t in ec2_types.TYPES.values()
        if ec2_types.family_of(t.name) in families and ".metal" not in t.name
    ]
    fitting = [candidate.type for candidate in select_fitting(job, members)]
    if not fitting:
        return _add_type(environment, "TYPE") + "   # TYPE: one that is large enough"
    return _add_type(environment, min(fitting, key=lambda t: (t.vcpus, t.memory_mib)).name)


def _add_type(environment: Environment, name: str) -> str:
    """Return the command that adds a type; the update replaces the whole list of types."""
    names = ",".join((*environment.instance_types, name))
    return update_resources_command(environment, f"instanceTypes={names}")
