"""The instance types that can run a child, with their prices. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchyard import ec2_types
from batchyard.batch.jobs import Resources
from batchyard.ec2_types import InstanceType
from batchyard.engines.base import FARGATE_CHOICE, HostChoice
from batchyard.errors import InputError
from batchyard.pipeline import Pipeline
from batchyard.units import format_memory

#: The zone of a price that is the lowest of a region, where the zone itself is not known.
CHEAPEST_ZONE = ""
#: For a child without GPUs: types with more than this many times the vCPUs that are needed are
#: left out. They cost as much per vCPU, and there are hundreds.
_MAX_VCPU_FACTOR = 4


@dataclass(frozen=True, slots=True)
class Offer:
    """An instance type and its prices, in US dollars per hour."""

    type: InstanceType
    #: None if the price is not known
    on_demand_usd_h: float | None
    #: zone -> price; empty if none is known
    spot_usd_h: Mapping[str, float]

    @property
    def cheapest_zone(self) -> str | None:
        return min(self.spot_usd_h, key=lambda zone: (self.spot_usd_h[zone], zone), default=None)

    @property
    def lowest_spot_usd_h(self) -> float | None:
        return min(self.spot_usd_h.values(), default=None)

    @property
    def lowest_usd_h(self) -> float | None:
        """Return the price on spot, or where there is none, on demand."""
        spot = self.lowest_spot_usd_h
        return self.on_demand_usd_h if spot is None else spot

    @property
    def saving(self) -> float | None:
        """Return the part of the on-demand price that spot saves, as a fraction."""
        spot = self.lowest_spot_usd_h
        if spot is None or not self.on_demand_usd_h:
            return None
        return 1 - spot / self.on_demand_usd_h

    @property
    def usd_gpu_h(self) -> float | None:
        """Return the lowest price for one of the GPUs; None without GPUs."""
        lowest = self.lowest_usd_h
        return None if lowest is None or not self.type.gpus else lowest / self.type.gpus

    def to_json(self) -> dict[str, Any]:
        return {
            "type": self.type.name,
            "vcpus": self.type.vcpus,
            "memory_mib": self.type.memory_mib,
            "gpus": self.type.gpus,
            "gpu": self.type.gpu or None,
            "gpu_memory_mib": self.type.gpu_memory_mib or None,
            "architecture": self.type.architecture,
            "on_demand_usd_h": self.on_demand_usd_h,
            "spot_usd_h": self.lowest_spot_usd_h,
            "zone": self.cheapest_zone or None,
            "zones": {zone: price for zone, price in self.spot_usd_h.items() if zone},
            "saving": self.saving,
            "usd_gpu_h": self.usd_gpu_h,
        }


@dataclass(frozen=True, slots=True)
class StepOffers:
    """Priced types for a step, and how many instances there may be of them."""

    offers: Mapping[str, Offer]
    #: for each compute environment, or group of a cluster: type -> the largest number of instances
    #: if all are of this type; None if it is not known. All of them may be full at once.
    fleets: Sequence[Mapping[str, int | None]]
    sources: tuple[str, ...]
    #: whether the types are those of the step's queue: it may start any of them
    are_of_queue: bool = False

    def max_instances(self, name: str) -> int | None:
        """Return the largest number of instances of a type; None if it is not known."""
        counts = [fleet[name] for fleet in self.fleets if name in fleet]
        return None if None in counts else sum(count or 0 for count in counts)


def select_types(
    needed: Resources, architecture: str = ec2_types.X86, gpu_memory_mib: int = 0
) -> list[InstanceType]:
    """Return the types that can run a child with these resources, smallest first.

    ``gpu_memory_mib``: memory that each GPU has at least.
    The memory of a type is what a host of it registers with ECS. Types whose GPUs ECS cannot
    assign, other accelerators and bare metal are left out; so are GPU types for a child without
    GPUs. Raises InputError if no type is large enough.
    """
    fitting = [
        listed
        for listed in ec2_types.TYPES.values()
        if listed.architecture == architecture
        and _can_run(listed, needed)
        and listed.gpu_memory_mib >= gpu_memory_mib
    ]
    if not fitting:
        gpu = f" with {format_memory(gpu_memory_mib)} of GPU memory" if gpu_memory_mib else ""
        raise InputError(
            f"no {architecture} instance type offers {needed}{gpu} to one job",
            hint="ask for less; a host offers a little less memory than its type has",
        )
    fitting.sort(key=lambda listed: (listed.gpus, listed.vcpus, listed.memory_mib, listed.name))
    if needed.gpus:
        return fitting
    max_vcpus = min(listed.vcpus for listed in fitting) * _MAX_VCPU_FACTOR
    return [listed for listed in fitting if listed.vcpus <= max_vcpus]


def select_queue_types(
    needed: Resources, choices: Iterable[HostChoice]
) -> list[dict[InstanceType, int | None]]:
    """Return the types that can run a child -> largest number of instances, of each choice.

    The number is None if it is not known. Choices without such a type are left out. Raises
    InputError if no type is large enough.
    """
    choices = tuple(choices)
    if FARGATE_CHOICE in choices:
        raise InputError("prices of Fargate are not known")
    fleets = []
    for choice in choices:
        counts = {listed: _count_hosts(choice, listed) for listed in _expand(choice, needed)}
        fleets += [counts] if counts else []
    if not fleets:
        names = ", ".join(name for choice in choices for name in choice.type_names)
        raise InputError(f"no known type of its hosts ({names}) offers {needed} to one job")
    return fleets


def _expand(choice: HostChoice, needed: Resources) -> list[InstanceType]:
    return [
        listed
        for listed in ec2_types.expand(choice.type_names)
        if _count_hosts(choice, listed) != 0 and _is_large_enough(listed, needed)
    ]


def _count_hosts(choice: HostChoice, listed: InstanceType) -> int | None:
    if choice.max_vcpus is None:
        return choice.max_hosts
    return choice.max_vcpus // listed.vcpus


def _is_large_enough(listed: InstanceType, needed: Resources) -> bool:
    registered = ec2_types.registered_resources(listed.name)
    return registered is not None and needed.fits_in(registered)


def _can_run(listed: InstanceType, needed: Resources) -> bool:
    family = ec2_types.family_of(listed.name)
    return (
        ".metal" not in listed.name
        and family not in ec2_types.TOO_OLD_FOR_AL2023
        and family not in ec2_types.OTHER_ACCELERATORS
        and (needed.gpus > 0) == (family in ec2_types.GPU_FAMILIES)
        and _is_large_enough(listed, needed)
    )


def sort_offers(offers: Iterable[Offer]) -> list[Offer]:
    """Return the offers, cheapest first; those without a price are left out."""
    priced = [offer for offer in offers if offer.lowest_usd_h is not None]
    return sorted(priced, key=lambda offer: (offer.lowest_usd_h or 0.0, offer.type.name))


def resources_of_step(pipeline: Pipeline, step: str | None) -> Resources:
    """Return what a child of the step requests; None stands for the only step of the pipeline.

    Raises InputError.
    """
    names = [listed.name for listed in pipeline.steps]
    if step is None and len(names) == 1:
        step = names[0]
    if step not in names:
        problem = f"no step {step!r}" if step else f"{len(names)} steps"
        raise InputError(
            f"pipeline {pipeline.name} has {problem}", hint=f"name one of: {', '.join(names)}"
        )
    chosen_step = pipeline.step(step)
    return Resources(chosen_step.cpus, chosen_step.memory_mib, chosen_step.gpus)
