"""EC2 instance types and their resources, from the answers of DescribeInstanceTypes in moto."""

from __future__ import annotations

from functools import cache
from typing import Any

from batchyard.batch.hosts import registered_mib
from batchyard.batch.jobs import Resources


def registered_resources(name: str) -> Resources | None:
    """Return what an instance of this type registers with ECS, or None for an unknown type."""
    return _resources_by_type().get(name)


def types_of_family(name: str) -> list[str]:
    """Return the types of a family such as `g5`, without metal types (facts, 8.3)."""
    return _types_by_family().get(name, [])


@cache
def _resources_by_type() -> dict[str, Resources]:
    # moto is imported here because reading its 1,400 types takes time.
    from moto.utilities.utils import load_resource

    return {
        name: _to_resources(name, description)
        for name, description in load_resource("ec2/resources/instance_types.json").items()
    }


@cache
def _types_by_family() -> dict[str, list[str]]:
    families: dict[str, list[str]] = {}
    for name in _resources_by_type():
        family, _, size = name.partition(".")
        if not size.startswith("metal"):
            families.setdefault(family, []).append(name)
    return families


def _to_resources(name: str, description: dict[str, Any]) -> Resources:
    gpus = description.get("GpuInfo", {}).get("Gpus", [])
    return Resources(
        vcpus=description["VCpuInfo"]["DefaultVCpus"],
        memory_mib=registered_mib(description["MemoryInfo"]["SizeInMiB"], name),
        # AWS Batch schedules only NVIDIA GPUs (facts, 8.3). AWS shows a part of a GPU as 0.
        gpus=sum(gpu["Count"] for gpu in gpus if gpu["Manufacturer"] == "NVIDIA"),
    )
