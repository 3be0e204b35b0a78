"""EC2 instance types: what each offers to jobs, from the answers of DescribeInstanceTypes that moto carries."""

from __future__ import annotations

from functools import cache
from typing import Any

from batchyard.batch.jobs import Resources

#: what is left of the nominal memory after the firmware and the kernel: an m4.large of 8192 MiB has 7985
_VISIBLE_SHARE = 0.975
#: what AWS Batch keeps for the agent (ECS_RESERVED_MEMORY)
_RESERVED_MIB = 32


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
        name: _offer(description) for name, description in load_resource("ec2/resources/instance_types.json").items()
    }


@cache
def _families() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in _offers():
        family, _, size = name.partition(".")
        if not size.startswith("metal"):
            found.setdefault(family, []).append(name)
    return found


def _offer(description: dict[str, Any]) -> Resources:
    gpus = description.get("GpuInfo", {}).get("Gpus", [])
    return Resources(
        vcpus=description["VCpuInfo"]["DefaultVCpus"],
        memory_mib=int(description["MemoryInfo"]["SizeInMiB"] * _VISIBLE_SHARE - _RESERVED_MIB),
        # Others than NVIDIA's are not scheduled (facts, 8.3). A fraction of a GPU counts as none, as in AWS's answer.
        gpus=sum(gpu["Count"] for gpu in gpus if gpu["Manufacturer"] == "NVIDIA"),
    )
