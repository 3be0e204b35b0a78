"""The clusters of ECS tasks, which moto keeps. The counts in their descriptions are made here."""

from __future__ import annotations

from batchyard.emulator import names
from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.ecs.records import Cluster
from batchyard.emulator.state import Document, EndpointState


def require(state: EndpointState, request: Document) -> Cluster:
    """Return the cluster of a request, by default `default`. Raises ApiError."""
    name = names.strip_arn(request.get("cluster") or "default")
    cluster = state.ecs.surroundings.find_cluster(name)
    if cluster is None:
        raise ApiError("ClusterNotFoundException", "Cluster not found.")
    return cluster


def require_active(state: EndpointState, request: Document) -> Cluster:
    cluster = require(state, request)
    if not cluster.is_active:
        raise ApiError("ClusterNotFoundException", "The referenced cluster was inactive.")
    return cluster


def count_tasks(state: EndpointState, name: str) -> Document:
    """Return the counts of instances and tasks in the description of a cluster."""
    tasks = [task for task in state.ecs.live_tasks() if task.cluster.name == name]
    running = sum(task.started_s is not None for task in tasks)
    return {
        "registeredContainerInstancesCount": sum(
            instance.cluster == name for instance in state.ecs.instances.values()
        ),
        "runningTasksCount": running,
        "pendingTasksCount": len(tasks) - running,
    }
