"""The container of a job definition or job: its properties, checks and requested resources."""

from __future__ import annotations

import re
from collections.abc import Iterator

from batchyard.batch import limits, validation
from batchyard.batch.jobs import Resources
from batchyard.emulator.api_errors import (
    InvalidRequestError,
    RequestExecutionError,
    raise_first,
)
from batchyard.emulator.state import Document

#: Member of a task in ecsProperties -> the same member in containerProperties.
_TASK_MEMBERS = {
    "volumes": "volumes",
    "executionRoleArn": "executionRoleArn",
    "taskRoleArn": "jobRoleArn",
    "networkConfiguration": "networkConfiguration",
    "ephemeralStorage": "ephemeralStorage",
    "runtimePlatform": "runtimePlatform",
    "enableExecuteCommand": "enableExecuteCommand",
}
#: Members in ecsProperties that only matter to one of several containers.
_MULTI_CONTAINER_MEMBERS = (
    "name",
    "essential",
    "dependsOn",
    "firelensConfiguration",
    "startTimeout",
    "stopTimeout",
)


def container_of(definition: Document) -> Document:
    """Return the properties of the one container, from containerProperties or ecsProperties.

    Raises InvalidRequestError if the definition has none, or several.
    """
    if "ecsProperties" in definition:
        return _ecs_container(definition)
    if "containerProperties" not in definition:
        raise InvalidRequestError(
            "containerProperties or ecsProperties must be provided for type container"
        )
    container: Document = definition["containerProperties"]
    return container


def _ecs_container(definition: Document) -> Document:
    if "containerProperties" in definition:
        raise RequestExecutionError("Cannot use both ECS containerProperties and ecsProperties")
    tasks = definition["ecsProperties"]["taskProperties"]
    if len(tasks) != 1:
        raise InvalidRequestError("ecsProperties.taskProperties must have exactly one element")
    containers = tasks[0]["containers"]
    if len(containers) != 1:
        raise InvalidRequestError(
            "this endpoint runs jobs of one container; ecsProperties with several are not for it"
        )
    container = containers[0]
    if not container.get("essential", True):
        raise InvalidRequestError(
            "ecsProperties must have at least one container that is essential"
        )
    task_members = {
        member: tasks[0][task_member]
        for task_member, member in _TASK_MEMBERS.items()
        if task_member in tasks[0]
    }
    return {
        **{key: value for key, value in container.items() if key not in _MULTI_CONTAINER_MEMBERS},
        **task_members,
    }


#: Members of a container that only Fargate has -> AWS's words for one of an EC2 job definition.
_FARGATE_MEMBERS = {
    "networkConfiguration": "networkConfiguration not applicable for EC2.",
    "fargatePlatformConfiguration": "fargatePlatformConfiguration not applicable for EC2.",
    "ephemeralStorage": "ephemeralStorage not applicable for EC2.",
    "runtimePlatform": "runtimePlatform is not applicable for EC2.",
}
#: Members of linuxParameters that Fargate does not have.
_EC2_LINUX_PARAMETERS = ("devices", "sharedMemorySize", "tmpfs", "maxSwap", "swappiness")
_FARGATE_LOG_DRIVERS = ("awslogs", "splunk", "awsfirelens")
_FARGATE_STORAGE_GIB = range(21, 200 + 1)
#: Type of a resource requirement -> AWS's noun for it, its minimum, and the unit of both.
_AMOUNTS = {"VCPU": ("vCPU", 1, ""), "MEMORY": ("Memory", 4, " Mib"), "GPU": ("GPU", 1, "")}


def _ec2_problems(container: Document) -> Iterator[str]:
    """Yield why AWS refuses the container of a job definition for EC2."""
    for member, message in _FARGATE_MEMBERS.items():
        if container.get(member):
            yield message


def _fargate_problems(container: Document) -> Iterator[str]:
    """Yield why AWS refuses the container of a job definition for Fargate."""
    if "executionRoleArn" not in container:
        yield "executionRoleArn must be provided for FARGATE"
    if container.get("privileged"):
        yield "Fargate requires that the 'privileged' setting be 'false' at the container level."
    if container.get("ulimits"):
        yield "ulimits is not applicable for Fargate."
    linux_parameters = container.get("linuxParameters", {})
    for member in _EC2_LINUX_PARAMETERS:
        # A registered definition has empty lists for what was not given.
        if linux_parameters.get(member) not in (None, []):
            yield f"linuxParameter.{member} is not allowed for Fargate."
    if any(volume.get("host", {}).get("sourcePath") for volume in container.get("volumes", [])):
        yield "host.sourcePath should not be set for volumes in Fargate."
    log_driver = container.get("logConfiguration", {}).get("logDriver", "awslogs")
    if log_driver not in _FARGATE_LOG_DRIVERS:
        yield f"Log driver for Fargate is not valid: {log_driver}"
    storage_gib = container.get("ephemeralStorage", {}).get("sizeInGiB")
    if storage_gib is not None and storage_gib not in _FARGATE_STORAGE_GIB:
        yield "Ephemeral storage for Fargate tasks can be only between range 21 GiB to 200 GiB"


def check_container(container: Document, *, is_fargate: bool) -> None:
    """Raise RequestExecutionError for the first member that AWS refuses."""
    if not container.get("image"):
        raise RequestExecutionError("containerProperties.image must be provided")
    if len(container["image"]) > limits.MAX_IMAGE_CHARS:
        raise RequestExecutionError("containerProperties.image must be at most 255 characters")
    raise_first(validation.environment_problems(container.get("environment", [])))
    raise_first(validation.secret_problems(container))
    requested_resources(container, is_fargate=is_fargate)
    raise_first(_fargate_problems(container) if is_fargate else _ec2_problems(container))
    volumes = {volume.get("name") for volume in container.get("volumes", [])}
    for mount in container.get("mountPoints", []):
        if not mount.get("containerPath"):
            raise RequestExecutionError("mountPoints: containerPath must be provided")
        if not mount.get("sourceVolume") or mount["sourceVolume"] not in volumes:
            raise RequestExecutionError(
                f"mountPoints: there is no volume named {mount.get('sourceVolume')!r}"
            )


def requested_resources(container: Document, *, is_fargate: bool = False) -> Resources:
    """Return the resources that a container requests (facts, 5.3).

    Raises RequestExecutionError if the request is incomplete or invalid.
    """
    amounts = _requested_amounts(container)
    memory_mib = _whole_amount("MEMORY", amounts)
    if is_fargate:
        return _fargate_resources(amounts, memory_mib)
    gpus = _whole_amount("GPU", amounts) if "GPU" in amounts else 0
    return Resources(_whole_amount("VCPU", amounts), memory_mib, gpus)


def _requested_amounts(container: Document) -> dict[str, str]:
    """Return VCPU, MEMORY and GPU -> the requested amount as text."""
    amounts: dict[str, str] = {}
    for requirement in container.get("resourceRequirements", []):
        kind = requirement["type"]
        if kind in amounts:
            raise RequestExecutionError("Cannot provide duplicates in resourceRequirements.")
        amounts[kind] = requirement["value"]
    for member, kind in (("vcpus", "VCPU"), ("memory", "MEMORY")):
        if container.get(member):
            amounts.setdefault(kind, str(container[member]))
    for kind, (noun, _, _) in _AMOUNTS.items():
        if kind not in amounts and kind != "GPU":
            raise RequestExecutionError(f"{noun} is required.")
    return amounts


def _fargate_resources(amounts: dict[str, str], memory_mib: int) -> Resources:
    if "GPU" in amounts:
        raise RequestExecutionError("GPU is not applicable for Fargate.")
    if not re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}", amounts["VCPU"]):
        raise RequestExecutionError(_not_numeric("VCPU", amounts["VCPU"]))
    vcpus = float(amounts["VCPU"])
    if memory_mib not in limits.FARGATE_MEMORY_MIB.get(vcpus, ()):
        raise RequestExecutionError(
            f"Fargate resource requirements ({vcpus:.2f} vCPU, {memory_mib} MiB) not valid."
        )
    # The scheduler counts whole vCPUs.
    return Resources(max(1, int(vcpus)), memory_mib)


def _whole_amount(kind: str, amounts: dict[str, str]) -> int:
    number = validation.parse_whole_number(amounts[kind])
    if number is None:
        raise RequestExecutionError(_not_numeric(kind, amounts[kind]))
    noun, minimum, unit = _AMOUNTS[kind]
    if number < minimum:
        raise RequestExecutionError(f"{noun} must be at least {minimum}{unit}, got {number}{unit}.")
    return number


def _not_numeric(kind: str, text: str) -> str:
    """Return AWS's words for a fraction on EC2, such as `1.0`, and for any other text."""
    return (
        f"Value {text} for type {kind} in resourceRequirement is not valid. "
        "Please provide a numeric value."
    )
