"""Parameter values that CloudFormation accepts and that cannot work: types, GPUs, disks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from batchyard import ec2_types as types

#: template -> its parameter with GPU instance types
GPU_TYPE_PARAMETERS = {
    "batch": "GpuInstanceTypes",
    "gpu-batch-benchmark": "GpuInstanceTypes",
    "batch-unmanaged": "InstanceTypes",
    "ecs": "InstanceTypes",
    "spotfleet": "InstanceTypes",
    "image": "InstanceTypes",
}
#: template -> the parameter with its image, the parameter with the disk of its nodes
_NODE_DISKS = {
    "batch": ("GpuImageParameter", "GpuVolumeGiB"),
    "batch-unmanaged": ("ImageId", "VolumeGiB"),
    "ecs": ("ImageId", "VolumeGiB"),
    "spotfleet": ("ImageId", "VolumeGiB"),
}

#: CPU units of ECS in one vCPU.
UNITS_PER_VCPU = 1024
#: parameter of a task -> what to do if the nodes have less
_TASK_HINTS = {
    "TaskGpus": "for four GPUs: --set InstanceTypes=g4dn.12xlarge,g5.12xlarge,g6.12xlarge",
    "TaskCpuUnits": "1024 units are one vCPU; take less, or larger types with --set InstanceTypes",
    "TaskMemoryMiB": "take less, or larger types with --set InstanceTypes",
}

#: template -> parameter -> value
Values = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class ValueProblem:
    template: str
    parameter: str
    value: str
    problem: str
    hint: str


def list_types(value: str) -> list[str]:
    """Return the names in a parameter with instance types."""
    return [name.strip() for name in value.split(",") if name.strip()]


def find_problems(values: Values, environment: str) -> list[ValueProblem]:
    """Return what cannot work with the values that the parameters have after a deployment."""
    return [
        problem
        for template in values
        for problem in (
            *_find_type_problems(template, values[template]),
            *_find_task_problems(template, values[template]),
            *_find_disk_problems(template, values, environment),
        )
    ]


def _find_type_problems(template: str, values: Mapping[str, str]) -> Iterator[ValueProblem]:
    parameter = GPU_TYPE_PARAMETERS.get(template, "")
    value = values.get(parameter, "")
    for name in list_types(value):
        problem = describe_gpu_type_problem(name)
        if problem:
            hint = "name NVIDIA types such as g4dn.xlarge, g5.xlarge or g6.xlarge"
            yield ValueProblem(template, parameter, value, problem, hint)


def describe_gpu_type_problem(name: str) -> str:
    """Return why GPU jobs cannot run on this type or family; empty if they can or may."""
    family = types.family_of(name)
    if name in types.WORDS:
        return f"{name} stands for families without GPUs"
    if family in types.TOO_OLD_FOR_AL2023:
        return f"the driver of the nodes' image (AL2023, NVIDIA) does not support the GPU of {name}"
    if family in types.UNSCHEDULABLE:
        return f"ECS cannot give the accelerator of {name} to a job"
    if types.is_known(name) is False:
        return f"there is no instance type {name}"
    if types.expand((name,)) and family not in types.GPU_FAMILIES:
        return f"{name} has no GPU"
    return ""


def _find_task_problems(template: str, values: Mapping[str, str]) -> Iterator[ValueProblem]:
    """Yield what a task of `ecs` asks for and the smallest of its nodes does not have."""
    if "TaskGpus" not in values:
        return
    names = list_types(values.get(GPU_TYPE_PARAMETERS[template], ""))
    task = {name: int(float(values.get(name, "0"))) for name in _TASK_HINTS}
    nodes = types.expand(names) if names else ()
    for name, hint in _TASK_HINTS.items():
        for node in nodes:
            offer = _list_task_offers(node.name)[name]
            if task[name] > offer:
                problem = (
                    f"{node.name} has {offer}, and a task must fit every type of InstanceTypes"
                )
                yield ValueProblem(template, name, values[name], problem, hint)
                break


def _list_task_offers(type_name: str) -> dict[str, int]:
    """Return parameter -> the most of it that a node of this type has for a task."""
    offer = types.registered_resources(type_name)
    assert offer is not None, f"{type_name} is not in the catalogue"
    return {
        "TaskGpus": offer.gpus,
        "TaskCpuUnits": offer.vcpus * UNITS_PER_VCPU,
        "TaskMemoryMiB": offer.memory_mib,
    }


def _find_disk_problems(template: str, values: Values, environment: str) -> Iterator[ValueProblem]:
    """Yield a problem if nodes have a smaller disk than the own image that they start from."""
    image_parameter, disk_parameter = _NODE_DISKS.get(template, ("", ""))
    image_gib = values.get("image", {}).get("VolumeGiB")
    is_own = values[template].get(image_parameter) == f"/{environment}/gpu-image"
    disk_gib = values[template].get(disk_parameter)
    if is_own and image_gib and disk_gib and float(disk_gib) < float(image_gib):
        yield ValueProblem(
            template,
            disk_parameter,
            disk_gib,
            f"the image of {environment}-image has {image_gib} GiB, and a node's disk cannot be"
            " smaller than its image",
            f"--set {disk_parameter}={image_gib}, or build a smaller image (VolumeGiB of image)",
        )
