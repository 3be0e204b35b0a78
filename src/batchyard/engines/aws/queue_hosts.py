"""What the hosts of queues offer, and the steps that no host of their queue can run. Pure.

A job that fits no host of its queue is accepted by AWS Batch, and stays RUNNABLE for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchyard.batch import hosts
from batchyard.batch.jobs import Resources
from batchyard.engines.aws.target import Target
from batchyard.plan import Plan
from batchyard.units import format_memory, pluralize

#: Words of `instanceTypes` for families of AWS's choice. None of these has GPUs.
_MAGIC_WORDS = ("optimal", "default_x86_64", "default_arm64")
#: Every instance type has this, so that nothing is asked about types for smaller steps.
_SMALLEST_HOST = Resources(vcpus=1, memory_mib=1024)
_ROOMY_VCPUS = 16
_UNLIMITED = 10**9


@dataclass(frozen=True, slots=True)
class ComputeEnvironment:
    """The hosts of a compute environment."""

    name: str
    is_fargate: bool = False
    #: None: AWS Batch does not manage the hosts, so their number is not known.
    max_vcpus: int | None = None
    #: As in the compute environment: types, families, and words for families. Empty for Fargate.
    type_names: tuple[str, ...] = ()
    is_spot: bool = False


def read_environments(
    queue: Mapping[str, Any], documents: Mapping[str, Any]
) -> tuple[ComputeEnvironment, ...]:
    """Return the compute environments of a queue, as far as ``documents`` has them by ARN."""
    entries = sorted(queue.get("computeEnvironmentOrder", ()), key=lambda entry: entry["order"])
    return tuple(
        _read_environment(documents[entry["computeEnvironment"]])
        for entry in entries
        if entry["computeEnvironment"] in documents
    )


def _read_environment(document: Mapping[str, Any]) -> ComputeEnvironment:
    name = str(document["computeEnvironmentName"])
    resources = document.get("computeResources")
    if document.get("type") == "UNMANAGED" or not resources:
        return ComputeEnvironment(name)
    max_vcpus = resources["maxvCpus"]
    if resources["type"].startswith("FARGATE"):
        return ComputeEnvironment(name, is_fargate=True, max_vcpus=max_vcpus)
    type_names = tuple(resources.get("instanceTypes") or ("default_x86_64",))
    is_spot = resources["type"] == "SPOT"
    return ComputeEnvironment(name, max_vcpus=max_vcpus, type_names=type_names, is_spot=is_spot)


def list_type_patterns(
    plan: Plan, target: Target, queues: Mapping[str, Sequence[ComputeEnvironment]]
) -> list[str]:
    """Return patterns of the instance types that must be known to decide where steps fit."""
    patterns = {
        name if "." in name else f"{name}.*"
        for job in plan.jobs
        for environment in queues.get(target.queue_of(job), ())
        if not (_fits(job.resources, _SMALLEST_HOST) and _is_roomy(environment))
        for name in environment.type_names
        if name not in _MAGIC_WORDS
    }
    return sorted(patterns)


def read_types(documents: Iterable[Mapping[str, Any]]) -> dict[str, Resources]:
    """Return type -> what a host of it offers to jobs, from DescribeInstanceTypes."""
    offers = {}
    for document in documents:
        name = str(document["InstanceType"])
        cards = (document.get("GpuInfo") or {}).get("Gpus", ())
        offers[name] = Resources(
            vcpus=document["VCpuInfo"]["DefaultVCpus"],
            memory_mib=hosts.registered_mib(document["MemoryInfo"]["SizeInMiB"], name),
            gpus=sum(card.get("Count", 0) for card in cards),
        )
    return offers


def find_misfits(
    plan: Plan,
    target: Target,
    queues: Mapping[str, Sequence[ComputeEnvironment]],
    types: Mapping[str, Resources],
) -> Iterator[str]:
    """Return a sentence for each step that no host of its queue can run.

    ``queues``: queue -> its compute environments. ``types``: what is known about instance types.
    """
    for job in plan.jobs:
        queue = target.queue_of(job)
        environments = queues.get(queue, ())
        if not environments or any(_can_run(job.resources, entry, types) for entry in environments):
            continue
        descriptions = "; ".join(_describe(environment) for environment in environments)
        yield (
            f"step {job.step!r}: a child asks for {_describe_resources(job.resources)}, and queue "
            f"{queue} has no host for it ({descriptions}): ask for less, or name another `queue:`"
        )


def _can_run(
    resources: Resources, environment: ComputeEnvironment, types: Mapping[str, Resources]
) -> bool:
    if environment.max_vcpus is None:
        return True
    if environment.is_fargate:
        # The sizes of tasks are checked with the other rules of Fargate (refusals).
        return resources.vcpus <= environment.max_vcpus
    for name in environment.type_names:
        if name in _MAGIC_WORDS:
            offers = [Resources(vcpus=environment.max_vcpus, memory_mib=_UNLIMITED)]
        else:
            # Of a type that is not known only the limit of the environment is known.
            unknown = Resources(environment.max_vcpus, _UNLIMITED, _UNLIMITED)
            offers = _find_offers(name, types) or [unknown]
        # AWS Batch starts whole hosts, and no host that alone is above maxvCpus.
        if any(
            _fits(resources, offer) and offer.vcpus <= environment.max_vcpus for offer in offers
        ):
            return True
    return False


def _is_roomy(environment: ComputeEnvironment) -> bool:
    """Return whether the smallest types of most families are below the environment's maxvCpus."""
    return environment.max_vcpus is None or environment.max_vcpus >= _ROOMY_VCPUS


def _find_offers(name: str, types: Mapping[str, Resources]) -> list[Resources]:
    """Return what hosts of a type, or of the types of a family, offer."""
    return [
        offer
        for type_name, offer in types.items()
        if name in (type_name, type_name.partition(".")[0])
    ]


def _fits(resources: Resources, offer: Resources) -> bool:
    return (
        resources.vcpus <= offer.vcpus
        and resources.memory_mib <= offer.memory_mib
        and resources.gpus <= offer.gpus
    )


def _describe(environment: ComputeEnvironment) -> str:
    hosts = "Fargate" if environment.is_fargate else ", ".join(environment.type_names)
    return f"{environment.name}: {hosts}, maxvCpus {environment.max_vcpus}"


def _describe_resources(resources: Resources) -> str:
    parts = [pluralize(resources.vcpus, "vCPU"), format_memory(resources.memory_mib)]
    if resources.gpus:
        parts.append(pluralize(resources.gpus, "GPU"))
    return " and ".join((", ".join(parts[:-1]), parts[-1]))
