"""The clusters of ECS tasks, which moto keeps. The counts in their descriptions are made here."""

from __future__ import annotations

from batchyard.emulator import names
from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.ecs.surroundings import Cluster
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


def create(state: EndpointState, request: Document) -> Document | None:
    """CreateCluster: show a cluster that exists as it is, and leave new ones to moto.

    moto 5.2.5: replaces a cluster of the same name, which then has no capacity providers.
    """
    name = request.get("clusterName", "default")
    cluster = state.ecs.surroundings.find_cluster(name)
    if cluster is None or not cluster.is_active:
        return None
    return {
        "cluster": {
            "clusterArn": cluster.arn,
            "clusterName": cluster.name,
            "status": "ACTIVE",
            "capacityProviders": cluster.providers,
            "defaultCapacityProviderStrategy": cluster.default_strategy,
            **count_tasks(state, cluster.name),
        }
    }


def delete(state: EndpointState, request: Document) -> None:
    """DeleteCluster: refuse a cluster that is in use, and leave all others to moto."""
    name = require(state, request).name
    in_use = {
        "Services": any(
            service.cluster.name == name and service.status == "ACTIVE"
            for service in state.ecs.services.values()
        ),
        "ContainerInstances": any(i.cluster == name for i in state.ecs.instances.values()),
        "Tasks": any(task.cluster.name == name for task in state.ecs.live_tasks()),
    }
    words = {"ContainerInstances": "Container Instances are active or draining"}
    for kind, is_in_use in in_use.items():
        if is_in_use:
            reason = words.get(kind, f"{kind} are active")
            message = f"The Cluster cannot be deleted while {reason}."
            raise ApiError(f"ClusterContains{kind}Exception", message)


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
        "activeServicesCount": sum(
            service.cluster.name == name and service.status == "ACTIVE"
            for service in state.ecs.services.values()
        ),
    }
