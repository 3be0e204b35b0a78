"""A reset of the endpoint: all jobs are ended, and all resources are forgotten."""

from __future__ import annotations

from batchyard.emulator import operations
from batchyard.emulator.ecs.records import EcsState
from batchyard.emulator.regions import Regions
from batchyard.emulator.state import (
    CONSUMABLE,
    ENVIRONMENT,
    KINDS,
    QUEUE,
    EndpointState,
)

_REASON = "the endpoint is reset"


def end_jobs(regions: Regions) -> None:
    """Kill all jobs, and let none start any more."""
    for state in regions.states():
        _end_health_checks(state)
        state.ecs = EcsState(state.ecs.surroundings, state.ecs.prober)
        for name, _ in list(state.items(QUEUE)):
            _perform(state, "UpdateJobQueue", {"jobQueue": name, "state": "DISABLED"})
    loop, store = regions.default.loop, regions.default.store
    loop.stop([row.id for row in store.jobs()], _REASON, 0)


def _end_health_checks(state: EndpointState) -> None:
    for task in state.ecs.live_tasks():
        for container in task.containers:
            if container.checkup is not None:
                container.checkup.end()


def has_ended_jobs(regions: Regions) -> bool:
    """Return whether the processes of all jobs have ended."""
    return not regions.default.scheduler.placed_children()


def forget_all(regions: Regions) -> None:
    """Remove all resources and ended jobs, in memory and on disk."""
    for state in regions.states():
        _forget_region(state)
    regions.default.store.remove_jobs()


def _forget_region(state: EndpointState) -> None:
    for name, _ in list(state.items(QUEUE)):
        _perform(state, "DeleteJobQueue", {"jobQueue": name})
    for name, _ in list(state.items(ENVIRONMENT)):
        disabled = {"computeEnvironment": name, "state": "DISABLED"}
        _perform(state, "UpdateComputeEnvironment", disabled)
        _perform(state, "DeleteComputeEnvironment", {"computeEnvironment": name})
    for name, _ in list(state.items(CONSUMABLE)):
        _perform(state, "DeleteConsumableResource", {"consumableResource": name})
    state.loop.commit()
    for kind in KINDS:
        for name, _ in list(state.items(kind)):
            state.remove(kind, name)
    state.save()
    state.forget_jobs()


def _perform(state: EndpointState, operation: str, request: dict[str, str]) -> None:
    operations.perform(state, "batch", operation, request)
