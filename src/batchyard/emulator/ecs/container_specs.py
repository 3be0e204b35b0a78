"""The containers of a task: its task definition with the overrides of RunTask. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from batchyard.batch.limits import MAX_OVERRIDE_CHARS
from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.ecs.health_checks import HealthCheck
from batchyard.emulator.ecs.placement import Need
from batchyard.emulator.ecs.task_states import Dependency

Document = dict[str, Any]

DEFAULT_STOP_TIMEOUT_S = 30
_UNITS_PER_VCPU = 1024
#: Members of a container definition that the container of a job has too.
_JOB_MEMBERS = (
    "user",
    "privileged",
    "readonlyRootFilesystem",
    "ulimits",
    "mountPoints",
    "linuxParameters",
)
#: Members of an override that replace those of the container definition.
_AMOUNTS = ("cpu", "memory", "memoryReservation")
_OVERRIDDEN = ("command", *_AMOUNTS)
#: A decimal number that is short enough to be one.
_AMOUNT = r"[0-9]{0,9}\.?[0-9]{1,9}"


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container of a task, with all overrides."""

    name: str
    image: str
    #: As `job["container"]` of a job has it, for the task maker and the log streams.
    container: Document
    need: Need
    #: None for a container without a hard limit of its own.
    memory_limit_mib: int | None
    is_essential: bool
    depends_on: tuple[Dependency, ...]
    stop_timeout_s: int
    #: Ports of the container that its instance shows, with the network modes bridge and host.
    open_ports: frozenset[int] = frozenset()
    health_check: HealthCheck | None = None


@dataclass(frozen=True, slots=True)
class TaskSpec:
    containers: tuple[ContainerSpec, ...]
    need: Need
    #: As DescribeTasks shows them; None where neither the definition nor an override has them.
    cpu: str | None
    memory: str | None
    task_role: str | None


def invalid(message: str) -> ApiError:
    return ApiError("InvalidParameterException", message)


def make_task_spec(definition: Document, overrides: Document) -> TaskSpec:
    """Return the containers of a task and what it needs. Raises ApiError for bad overrides."""
    _check_overrides(definition, overrides)
    by_name = {entry["name"]: entry for entry in overrides.get("containerOverrides", [])}
    containers = tuple(
        _make_container(definition, container, by_name.get(container["name"], {}))
        for container in definition["containerDefinitions"]
    )
    cpu, memory = (overrides.get(member) or definition.get(member) for member in ("cpu", "memory"))
    total = add_needs(container.need for container in containers)
    need = total._replace(
        cpu_units=parse_cpu(cpu) if cpu else total.cpu_units,
        memory_mib=parse_memory(memory) if memory else total.memory_mib,
    )
    role = overrides.get("taskRoleArn") or definition.get("taskRoleArn")
    return TaskSpec(containers, need, cpu, memory, role)


def find_oversized_container(spec: TaskSpec) -> str | None:
    """Return AWS's message about a container that is larger than its task; None for no such."""
    for container in spec.containers:
        amounts = {
            "cpu": (container.need.cpu_units, spec.need.cpu_units),
            "memory": (container.memory_limit_mib or 0, spec.need.memory_mib),
            "memoryReservation": (container.need.memory_mib, spec.need.memory_mib),
        }
        for member, (amount, limit) in amounts.items():
            # Without a limit of the task, its need is the sum of what its containers reserve.
            is_limited = spec.cpu if member == "cpu" else spec.memory
            if is_limited and amount > limit:
                return (
                    f"The '{member}' setting for container '{container.name}' is greater than for "
                    "the task."
                )
    return None


def add_needs(needs: Iterable[Need]) -> Need:
    total = Need()
    for need in needs:
        total = Need(
            total.cpu_units + need.cpu_units,
            total.memory_mib + need.memory_mib,
            total.gpus + need.gpus,
            total.ports | need.ports,
        )
    return total


def _check_overrides(definition: Document, overrides: Document) -> None:
    if len(json.dumps(overrides)) > MAX_OVERRIDE_CHARS:
        raise invalid(f"Container Overrides length must be at most {MAX_OVERRIDE_CHARS}")
    container_names = {container["name"] for container in definition["containerDefinitions"]}
    for entry in overrides.get("containerOverrides", []):
        name = entry.get("name")
        if not name:
            raise invalid("The container name must be specified in overrides.")
        if name not in container_names:
            raise invalid(
                f"Override for container named {name} is not a container in the TaskDefinition."
            )


def _make_container(definition: Document, container: Document, override: Document) -> ContainerSpec:
    merged = {**container, **{key: override[key] for key in _OVERRIDDEN if key in override}}
    for member in _AMOUNTS:
        if merged.get(member, 0) < 0:
            raise invalid(f"Invalid {member} of container {container['name']}: {merged[member]}")
    requirements = {"resourceRequirements": [], **container, **override}["resourceRequirements"]
    environment = {
        entry.get("name", ""): entry.get("value", "")
        for entry in (*container.get("environment", []), *override.get("environment", []))
    }
    memory_mib = merged.get("memory")
    need = Need(
        merged.get("cpu", 0),
        merged.get("memoryReservation") or memory_mib or 0,
        _count_gpus(requirements),
        _host_ports(definition, container),
    )
    return ContainerSpec(
        name=container["name"],
        image=container["image"],
        container={
            **{key: container[key] for key in _JOB_MEMBERS if key in container},
            "image": container["image"],
            "command": list(merged.get("command", [])),
            "entryPoint": container.get("entryPoint", []),
            "workingDirectory": container.get("workingDirectory", ""),
            "environment": [{"name": k, "value": v} for k, v in environment.items()],
            "secrets": container.get("secrets", []),
            "volumes": definition.get("volumes", []),
            # A container without a log driver writes to Docker's own log.
            "logConfiguration": container.get("logConfiguration", {"logDriver": "json-file"}),
        },
        need=need,
        memory_limit_mib=memory_mib,
        is_essential=container.get("essential", True),
        depends_on=tuple(
            Dependency(entry["containerName"], entry["condition"])
            for entry in container.get("dependsOn", [])
        ),
        stop_timeout_s=container.get("stopTimeout", DEFAULT_STOP_TIMEOUT_S),
        open_ports=_open_ports(definition, container),
        health_check=_read_health_check(container),
    )


def _read_health_check(container: Document) -> HealthCheck | None:
    if "healthCheck" not in container:
        return None
    try:
        return HealthCheck.parse(container["healthCheck"])
    except ValueError as exc:
        name = container["name"]
        message = f"Invalid setting for container '{name}'. In 'healthCheck', {exc}."
        raise ApiError("ClientException", message) from None


def _count_gpus(requirements: Iterable[Mapping[str, str]]) -> int:
    values = [entry["value"] for entry in requirements if entry["type"] == "GPU"]
    for value in values:
        if not re.fullmatch(r"[1-9][0-9]?", value):
            raise invalid(
                f"Invalid GPU value {value!r}: this endpoint gives whole GPUs, from 1 to 99"
            )
    return sum(map(int, values))


def _open_ports(definition: Document, container: Document) -> frozenset[int]:
    if definition.get("networkMode", "bridge") in ("awsvpc", "none"):
        return frozenset()
    ports = (mapping.get("containerPort", 0) for mapping in container.get("portMappings", []))
    return frozenset(port for port in ports if port)


def _host_ports(definition: Document, container: Document) -> frozenset[int]:
    """Return the ports of the instance that a container takes; awsvpc has ports of its own."""
    mode = definition.get("networkMode", "bridge")
    if mode in ("awsvpc", "none"):
        return frozenset()
    ports = set()
    for mapping in container.get("portMappings", []):
        port = mapping.get("hostPort", 0)
        ports.add(mapping.get("containerPort", 0) if mode == "host" and not port else port)
    return frozenset(ports - {0})


def parse_cpu(text: str) -> int:
    """Return CPU units: `512`, or `.5 vCPU`. Raises ApiError."""
    match = re.fullmatch(rf"\s*({_AMOUNT})\s*(vcpu)?\s*", text, re.IGNORECASE)
    if match is None or (match[2] is None and "." in match[1]):
        raise invalid(f"Invalid setting for cpu: {text!r}. Use units like 1024, or 1 vCPU.")
    return int(float(match[1]) * _UNITS_PER_VCPU) if match[2] else int(match[1])


def parse_memory(text: str) -> int:
    """Return MiB: `512`, or `2 GB`. Raises ApiError."""
    match = re.fullmatch(rf"\s*({_AMOUNT})\s*(gb)?\s*", text, re.IGNORECASE)
    if match is None or (match[2] is None and "." in match[1]):
        raise invalid(f"Invalid setting for memory: {text!r}. Use MiB like 1024, or 1 GB.")
    return int(float(match[1]) * 1024) if match[2] else int(match[1])
