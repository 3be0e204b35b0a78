"""Prepare an ECS cluster for the deletion of its stack: end services, tasks and nodes.

CloudFormation deletes neither, and waits for hours for nodes that are protected from scale-in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from batchyard.aws.clusters import Clusters
from batchyard.infra.stacks import Dialog
from batchyard.units import format_duration, pluralize

#: Nodes take some minutes to end.
_MAX_WAIT_S = 900.0
_POLL_S = 5.0
_REPORT_INTERVAL_S = 60.0


def release(
    clusters: Clusters,
    dialog: Dialog,
    stack: str,
    resources: Iterable[tuple[str, str]],
    sleep: Callable[[float], None],
) -> None:
    """End what runs on the clusters of a stack, and wait until their nodes are gone.

    ``resources``: type and physical id of each resource of the stack.
    """
    by_type: dict[str, list[str]] = {}
    for kind, physical_id in resources:
        by_type.setdefault(kind, []).append(physical_id)
    names = [name.rpartition("/")[2] for name in by_type.get("AWS::ECS::Cluster", ())]
    for name in names:
        _end_tasks(clusters, dialog, stack, name)
    for provider in by_type.get("AWS::ECS::CapacityProvider", ()):
        group = clusters.release_provider(provider)
        count = clusters.empty_group(group) if group else 0
        if count:
            dialog.say(f"{stack}: {pluralize(count, 'node')} no longer protected, and ending")
    for fleet in by_type.get("AWS::EC2::SpotFleet", ()):
        clusters.empty_fleet(fleet)
    for name in names:
        _wait_for_nodes(clusters, dialog, stack, name, sleep)


def _end_tasks(clusters: Clusters, dialog: Dialog, stack: str, cluster: str) -> None:
    for service in clusters.services(cluster):
        clusters.delete_service(cluster, service["serviceName"])
        dialog.say(f"{stack}: deleted the service {service['serviceName']} on {cluster}")
    tasks = clusters.tasks(cluster)
    for task in tasks:
        clusters.stop_task(cluster, task["taskArn"])
    if tasks:
        dialog.say(f"{stack}: stopped {pluralize(len(tasks), 'task')} on {cluster}")


def _wait_for_nodes(
    clusters: Clusters, dialog: Dialog, stack: str, cluster: str, sleep: Callable[[float], None]
) -> None:
    """Wait until a cluster has no node; deregister nodes that stay, so that it can be deleted."""
    waited_s = 0.0
    while (nodes := clusters.nodes(cluster)) and waited_s < _MAX_WAIT_S:
        if waited_s % _REPORT_INTERVAL_S == 0:
            after = f" for {format_duration(waited_s)}" if waited_s else ""
            dialog.say(f"{stack}: waiting{after} for {pluralize(len(nodes), 'node')} to end")
        sleep(_POLL_S)
        waited_s += _POLL_S
    for node in nodes:
        clusters.deregister_node(cluster, node)
    if nodes:
        count = pluralize(len(nodes), "node")
        dialog.say(f"{stack}: {count} did not end; deregistered from {cluster}")
