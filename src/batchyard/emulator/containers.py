"""The container of a job definition or job: its properties, checks and requested resources."""

from __future__ import annotations

from batchyard.batch import limits, validation
from batchyard.batch.jobs import Resources
from batchyard.emulator.api_errors import (
    InvalidRequestError,
    InvalidSubmissionError,
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
        raise InvalidRequestError("containerProperties and ecsProperties exclude each other")
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


def check_container(container: Document, *, is_fargate: bool) -> None:
    """Raise InvalidSubmissionError for the first member that AWS refuses."""
    if not container.get("image"):
        raise InvalidSubmissionError("containerProperties.image must be provided")
    if len(container["image"]) > limits.MAX_IMAGE_CHARS:
        raise InvalidSubmissionError("containerProperties.image must be at most 255 characters")
    raise_first(validation.environment_problems(container.get("environment", [])))
    raise_first(validation.secret_problems(container))
    requested_resources(container, is_fargate=is_fargate)
    if is_fargate and "executionRoleArn" not in container:
        raise InvalidSubmissionError("executionRoleArn must be provided for FARGATE")
    volumes = {volume.get("name") for volume in container.get("volumes", [])}
    for mount in container.get("mountPoints", []):
        if not mount.get("containerPath"):
            raise InvalidSubmissionError("mountPoints: containerPath must be provided")
        if not mount.get("sourceVolume") or mount["sourceVolume"] not in volumes:
            raise InvalidSubmissionError(
                f"mountPoints: there is no volume named {mount.get('sourceVolume')!r}"
            )


def requested_resources(container: Document, *, is_fargate: bool = False) -> Resources:
    """Return the resources that a container requests (facts, 5.3).

    Raises InvalidSubmissionError if the request is incomplete or invalid.
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
            raise InvalidSubmissionError(
                f"resourceRequirements must not have two entries of type {kind}"
            )
        amounts[kind] = requirement["value"]
    for member, kind in (("vcpus", "VCPU"), ("memory", "MEMORY")):
        if container.get(member):
            amounts.setdefault(kind, str(container[member]))
    for member, kind in (("vcpus", "VCPU"), ("memory", "MEMORY")):
        if kind not in amounts:
            raise InvalidSubmissionError(
                f"resourceRequirements must have an entry of type {kind} ({member} is required)"
            )
    return amounts


def _fargate_resources(amounts: dict[str, str], memory_mib: int) -> Resources:
    if "GPU" in amounts:
        raise InvalidSubmissionError("resourceRequirements of type GPU are not for FARGATE")
    try:
        vcpus = float(amounts["VCPU"])
    except ValueError:
        vcpus = 0.0
    if memory_mib not in limits.FARGATE_MEMORY_MIB.get(vcpus, ()):
        raise InvalidSubmissionError(
            f"Fargate does not have {amounts['VCPU']} VCPU with {memory_mib} MiB of MEMORY"
        )
    # The scheduler counts whole vCPUs.
    return Resources(max(1, int(vcpus)), memory_mib)


def _whole_amount(kind: str, amounts: dict[str, str]) -> int:
    raise_first(validation.requirement_problems(kind, amounts[kind], is_fargate=False))
    return validation.parse_whole_number(amounts[kind]) or 0
