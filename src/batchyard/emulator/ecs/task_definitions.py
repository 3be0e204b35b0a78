"""Task definitions: families with revisions, ACTIVE or INACTIVE."""

from __future__ import annotations

import json
import re
from graphlib import CycleError, TopologicalSorter

from batchyard.emulator import names
from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.ecs.container_specs import (
    find_oversized_container,
    invalid,
    make_task_spec,
)
from batchyard.emulator.ecs.paging import page
from batchyard.emulator.state import Document, EndpointState

_MAX_BYTES = 64 * 1024
_MIN_MEMORY_MIB = 4
_FAMILY = re.compile(r"[A-Za-z0-9_-]{1,255}")
_CONTAINER_DEFAULTS: Document = {
    "cpu": 0,
    "portMappings": [],
    "essential": True,
    "environment": [],
    "mountPoints": [],
    "volumesFrom": [],
    "systemControls": [],
}


def client_error(message: str) -> ApiError:
    return ApiError("ClientException", message)


# -- operations -----------------------------------------------------------------------------------


def register(state: EndpointState, request: Document) -> Document:
    _check(request)
    family = request["family"]
    revisions = state.ecs.definitions.setdefault(family, [])
    revision = len(revisions) + 1
    is_fargate = "FARGATE" in request.get("requiresCompatibilities", [])
    document = {
        "volumes": [],
        "placementConstraints": [],
        "networkMode": "awsvpc" if is_fargate else "bridge",
        **{key: value for key, value in request.items() if key != "tags"},
        "containerDefinitions": [
            {**_CONTAINER_DEFAULTS, **container} for container in request["containerDefinitions"]
        ],
        "taskDefinitionArn": names.arn("ecs", state.region, f"task-definition/{family}:{revision}"),
        "revision": revision,
        "status": "ACTIVE",
        "compatibilities": ["EC2", "FARGATE"] if is_fargate else ["EC2"],
        "requiresAttributes": [],
        "registeredAt": state.clock(),
        "_tags": list(request.get("tags", [])),
    }
    revisions.append(document)
    return _answer(document)


def describe(state: EndpointState, request: Document) -> Document:
    document = find(state, request["taskDefinition"])
    if document is None:
        raise client_error("Unable to describe task definition.")
    answer: Document = {"taskDefinition": _public(document)}
    if "TAGS" in request.get("include", []):
        answer["tags"] = document["_tags"]
    return answer


def deregister(state: EndpointState, request: Document) -> Document:
    name = request["taskDefinition"]
    if ":" not in names.strip_arn(name):
        raise invalid("Invalid revision number. Specify family:revision.")
    document = find(state, name)
    if document is None:
        raise client_error("The specified task definition does not exist.")
    document |= {"status": "INACTIVE", "deregisteredAt": state.clock()}
    return {"taskDefinition": _public(document)}


def delete(state: EndpointState, request: Document) -> Document:
    deleted, failures = [], []
    for name in request["taskDefinitions"]:
        document = find(state, name)
        if document is None or document["status"] != "INACTIVE":
            reason = "The specified task definition is still in ACTIVE status. Please deregister "
            reason += "the target and try again."
            missing = "The specified task definition does not exist."
            failures.append({"arn": name, "reason": missing if document is None else reason})
            continue
        document["status"] = "DELETE_IN_PROGRESS"
        deleted.append(_public(document))
    return {"taskDefinitions": deleted, "failures": failures}


def list_definitions(state: EndpointState, request: Document) -> Document:
    family, status = request.get("familyPrefix"), request.get("status", "ACTIVE")
    arns = [
        document["taskDefinitionArn"]
        for name in sorted(state.ecs.definitions)
        if family is None or name == family
        for document in state.ecs.definitions[name]
        if document["status"] == status
    ]
    return page("taskDefinitionArns", arns[:: -1 if request.get("sort") == "DESC" else 1], request)


def list_families(state: EndpointState, request: Document) -> Document:
    prefix, status = request.get("familyPrefix", ""), request.get("status", "ACTIVE")
    families = [
        family
        for family, revisions in sorted(state.ecs.definitions.items())
        if family.startswith(prefix) and _has_status(revisions, status)
    ]
    return page("families", families, request)


def _has_status(revisions: list[Document], status: str) -> bool:
    is_active = any(document["status"] == "ACTIVE" for document in revisions)
    return status == "ALL" or is_active == (status == "ACTIVE")


# -- used by tasks and services -------------------------------------------------------------------


def find(state: EndpointState, name_or_arn: str) -> Document | None:
    """Return a revision by `family:revision` or ARN, or the newest ACTIVE one of a family."""
    family, _, revision = names.strip_arn(name_or_arn).partition(":")
    revisions = state.ecs.definitions.get(family, [])
    if not revision:
        active = [document for document in revisions if document["status"] == "ACTIVE"]
        return active[-1] if active else None
    if not re.fullmatch(r"[0-9]{1,9}", revision):
        raise client_error(f"Invalid revision number. Number: {revision}")
    return next((d for d in revisions if d["revision"] == int(revision)), None)


def require_active(state: EndpointState, name_or_arn: str) -> Document:
    """Return the definition of a new task or service. Raises ApiError."""
    document = find(state, name_or_arn)
    if document is None:
        raise client_error("TaskDefinition not found.")
    if document["status"] != "ACTIVE":
        raise client_error("TaskDefinition is inactive")
    return document


def _answer(document: Document) -> Document:
    answer = {"taskDefinition": _public(document)}
    return answer | ({"tags": document["_tags"]} if document["_tags"] else {})


def _public(document: Document) -> Document:
    return {key: value for key, value in document.items() if not key.startswith("_")}


# -- checks ---------------------------------------------------------------------------------------


def _check(request: Document) -> None:
    if not _FAMILY.fullmatch(request["family"]):
        raise client_error(
            "Family should only contain letters, numbers, underscores and hyphens, "
            "up to 255 characters."
        )
    if len(json.dumps(request)) > _MAX_BYTES:
        raise client_error("Actual length of the task definition exceeds the limit of 64 KiB.")
    if not request["containerDefinitions"]:
        raise client_error("TaskDefinition must have at least one container definition.")
    if "FARGATE" in request.get("requiresCompatibilities", []):
        _check_fargate(request)
    container_names = [container.get("name", "") for container in request["containerDefinitions"]]
    if len(set(container_names)) < len(container_names):
        raise client_error("Container names must be unique in a task definition.")
    if not any(c.get("essential", True) for c in request["containerDefinitions"]):
        raise client_error("A task definition must have at least one essential container.")
    checked_names = {
        container.get("name", "")
        for container in request["containerDefinitions"]
        if "healthCheck" in container
    }
    for container in request["containerDefinitions"]:
        _check_container(request, container, container_names)
        _check_healthy_dependencies(container, checked_names)
    _check_order(request["containerDefinitions"])
    problem = find_oversized_container(make_task_spec(request, {}))
    if problem is not None:
        raise client_error(problem)


def _check_order(containers: list[Document]) -> None:
    targets = {
        container["name"]: {entry["containerName"] for entry in container.get("dependsOn", [])}
        for container in containers
    }
    try:
        TopologicalSorter(targets).prepare()
    except CycleError as exc:
        circle = " -> ".join(exc.args[1])
        raise client_error(f"Containers of a task cannot wait for one another: {circle}") from None


def _check_fargate(request: Document) -> None:
    if request.get("networkMode", "awsvpc") != "awsvpc":
        raise client_error("Fargate only supports network mode 'awsvpc'.")
    for member in ("cpu", "memory"):
        if member not in request:
            raise client_error(f"Fargate requires that '{member}' be defined at the task level.")
    for container in request["containerDefinitions"]:
        if container.get("resourceRequirements"):
            raise client_error("Tasks using the Fargate launch type do not support GPUs.")


def _check_container(request: Document, container: Document, container_names: list[str]) -> None:
    name = container.get("name", "")
    if not _FAMILY.fullmatch(name):
        raise client_error(f"Invalid container name {name!r}: letters, digits, _ and - only.")
    if not container.get("image"):
        raise client_error("Container.image should not be null or empty.")
    _check_memory(request, container)
    _check_dependencies(container, container_names)
    _check_mounts(request, container)


def _check_memory(request: Document, container: Document) -> None:
    name = container["name"]
    memory, reservation = container.get("memory"), container.get("memoryReservation")
    if memory is None and reservation is None and "memory" not in request:
        raise client_error(
            "Invalid setting for container '" + name + "'. At least one of 'memory' or "
            "'memoryReservation' must be specified."
        )
    if memory is not None and memory < _MIN_MEMORY_MIB:
        raise client_error(
            f"Invalid setting for container '{name}'. 'memory' must be at least "
            f"{_MIN_MEMORY_MIB} MiB."
        )
    if memory is not None and reservation is not None and reservation > memory:
        raise client_error(
            f"Invalid setting for container '{name}'. 'memory' must be greater than "
            "'memoryReservation'."
        )


def _check_dependencies(container: Document, container_names: list[str]) -> None:
    name = container["name"]
    for dependency in container.get("dependsOn", []):
        if dependency["containerName"] not in set(container_names) - {name}:
            raise client_error(
                f"Invalid 'dependsOn' of container '{name}': "
                f"{dependency['containerName']} is not another container of the task."
            )


def _check_healthy_dependencies(container: Document, checked_names: set[str]) -> None:
    for dependency in container.get("dependsOn", []):
        target = dependency["containerName"]
        if dependency["condition"] == "HEALTHY" and target not in checked_names:
            raise client_error(
                f"Invalid 'dependsOn' of container '{container['name']}': the condition HEALTHY "
                f"needs a health check of container '{target}'."
            )


def _check_mounts(request: Document, container: Document) -> None:
    volumes = {volume.get("name") for volume in request.get("volumes", [])}
    for mount in container.get("mountPoints", []):
        if mount.get("sourceVolume") not in volumes or not mount.get("containerPath"):
            raise client_error(
                f"Unknown volume '{mount.get('sourceVolume')}' in the mount points of "
                f"'{container['name']}'."
            )
