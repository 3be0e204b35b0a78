"""What runs on a cluster is ended before its stack is deleted."""

from __future__ import annotations

from typing import Any, cast

from scripted_cloudformation import Listener

from batchyard.aws.clusters import Clusters
from batchyard.infra import cluster_release

RESOURCES = [
    ("AWS::ECS::Cluster", "dev-ecs"),
    ("AWS::ECS::CapacityProvider", "dev-gpu-nodes"),
    ("AWS::EC2::SpotFleet", "sfr-1"),
    ("AWS::S3::Bucket", "results"),
]


class Cluster:
    """A cluster with a service, a task and nodes that end after ``polls`` looks."""

    def __init__(self, polls: int) -> None:
        self.polls = polls
        self.calls: list[str] = []
        self.slept_s = 0.0

    def services(self, cluster: str) -> list[Any]:
        return [{"serviceName": "web"}]

    def tasks(self, cluster: str) -> list[Any]:
        return [{"taskArn": "task-1"}]

    def nodes(self, cluster: str) -> list[str]:
        self.polls -= 1
        return ["node-1"] if self.polls >= 0 else []

    def sleep(self, duration_s: float) -> None:
        self.slept_s += duration_s

    def delete_service(self, cluster: str, name: str) -> None:
        self.calls.append(f"delete {name}")

    def stop_task(self, cluster: str, arn: str) -> None:
        self.calls.append(f"stop {arn}")

    def deregister_node(self, cluster: str, arn: str) -> None:
        self.calls.append(f"deregister {arn}")

    def release_provider(self, name: str) -> str:
        self.calls.append(f"release {name}")
        return "group"

    def empty_group(self, name: str) -> int:
        self.calls.append(f"empty {name}")
        return 1

    def empty_fleet(self, request_id: str) -> None:
        self.calls.append(f"empty {request_id}")


def release(polls: int) -> tuple[Cluster, list[str]]:
    cluster, listener = Cluster(polls), Listener()
    clusters = cast(Clusters, cluster)
    cluster_release.release(clusters, listener, "dev-ecs", RESOURCES, cluster.sleep)
    return cluster, listener.said


def test_tasks_end_before_nodes_and_the_nodes_are_waited_for() -> None:
    cluster, said = release(polls=13)
    assert cluster.calls == [
        *("delete web", "stop task-1", "release dev-gpu-nodes", "empty group", "empty sfr-1"),
    ]
    assert said == [
        "dev-ecs: deleted the service web on dev-ecs",
        "dev-ecs: stopped 1 task on dev-ecs",
        "dev-ecs: 1 node no longer protected, and ending",
        "dev-ecs: waiting for 1 node to end",
        "dev-ecs: waiting for 1m for 1 node to end",
    ]


def test_a_node_that_does_not_end_is_deregistered() -> None:
    cluster, said = release(polls=10**6)
    assert cluster.slept_s == 900
    assert cluster.calls[-1] == "deregister node-1"
    assert said[-1] == "dev-ecs: 1 node did not end; deregistered from dev-ecs"
