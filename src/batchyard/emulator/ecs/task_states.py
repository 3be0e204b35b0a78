"""The life of an ECS task: its state, why it stopped, and which containers start or stop. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

EXITED = "Essential container in task exited"
NOT_STARTED = "Task failed to start"


class Dependency(NamedTuple):
    container: str
    #: START, COMPLETE, SUCCESS or HEALTHY
    condition: str


@dataclass(frozen=True, slots=True)
class ContainerView:
    """What is known about a container of a task at one moment."""

    name: str
    is_essential: bool = True
    depends_on: tuple[Dependency, ...] = ()
    #: Whether the container was given to the engine, runs or ran, and is over.
    is_begun: bool = False
    is_started: bool = False
    is_over: bool = False
    exit_code: int | None = None
    #: UNKNOWN, HEALTHY or UNHEALTHY
    health: str = "UNKNOWN"


def last_status(
    containers: Sequence[ContainerView], *, is_placed: bool, is_stopping: bool, is_stopped: bool
) -> str:
    """Return lastStatus. A task is RUNNING when all its containers have started."""
    if is_stopped:
        return "STOPPED"
    if is_stopping:
        return "STOPPING"
    if not is_placed:
        return "PROVISIONING"
    return "RUNNING" if all(container.is_started for container in containers) else "PENDING"


def containers_to_begin(containers: Sequence[ContainerView]) -> list[str]:
    """Return the containers whose dependencies are met and that were not begun yet."""
    by_name = {container.name: container for container in containers}
    return [
        container.name
        for container in containers
        if not container.is_begun
        and all(_is_met(dependency, by_name) for dependency in container.depends_on)
    ]


def _is_met(dependency: Dependency, by_name: Mapping[str, ContainerView]) -> bool:
    target = by_name[dependency.container]
    if dependency.condition == "SUCCESS":
        return target.is_over and target.exit_code == 0
    if dependency.condition == "COMPLETE":
        return target.is_over
    if dependency.condition == "HEALTHY":
        return target.health == "HEALTHY"
    return target.is_started


class Stop(NamedTuple):
    """Why a task stops."""

    code: str
    reason: str


def find_stop(containers: Sequence[ContainerView]) -> Stop | None:
    """Return why a task stops by itself; None while it goes on."""
    by_name = {container.name: container for container in containers}
    for container in containers:
        if container.is_over and not container.is_started:
            return Stop("TaskFailedToStart", NOT_STARTED)
    for container in containers:
        if container.is_over and container.is_essential:
            return Stop("EssentialContainerExited", EXITED)
    for container in containers:
        if not container.is_begun and any(
            _can_never_be_met(dependency, by_name) for dependency in container.depends_on
        ):
            return Stop("TaskFailedToStart", NOT_STARTED)
    return None


def _can_never_be_met(dependency: Dependency, by_name: Mapping[str, ContainerView]) -> bool:
    target = by_name[dependency.container]
    if dependency.condition == "HEALTHY":
        return target.is_over or target.health == "UNHEALTHY"
    return dependency.condition == "SUCCESS" and target.is_over and target.exit_code != 0
