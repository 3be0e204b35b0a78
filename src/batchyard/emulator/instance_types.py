"""EC2 instance types: what each offers to jobs, from the answers of DescribeInstanceTypes that moto carries."""

from __future__ import annotations

from functools import cache
from typing import Any

from batchyard.batch.hosts import registered_mib
from batchyard.batch.jobs import Resources


def instance_type(name: str) -> Resources | None:
    """What an instance of this type registers with ECS; None where nobody knows the type."""
    return _offers().get(name)


def instance_family(name: str) -> list[str]:
    """The types of a family such as `g5`, without `.metal`, which a family's name does not stand for (facts, 8.3)."""
    return _families().get(name, [])


@cache
def _offers() -> dict[str, Resources]:
    # 1,400 types, read when the first one is asked for.
    from moto.utilities.utils import load_resource

    return {
        name: _offer(name, description)
        for name, description in load_resource("ec2/resources/instance_types.json").items()
    }


@cache
def _families() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in _offers():
        family, _, size = name.partition(".")
        if not size.startswith("metal"):
            found.setdefault(family, []).append(name)
    return found


def _offer(name: str, description: dict[str, Any]) -> Resources:
    gpus = description.get("GpuInfo", {}).get("Gpus", [])
    return Resources(
        vcpus=description["VCpuInfo"]["DefaultVCpus"],
        memory_mib=registered_mib(description["MemoryInfo"]["SizeInMiB"], name),
        # Others than NVIDIA's are not scheduled (facts, 8.3). A fraction of a GPU counts as none, as in AWS's answer.
        gpus=sum(gpu["Count"] for gpu in gpus if gpu["Manufacturer"] == "NVIDIA"),
    )
