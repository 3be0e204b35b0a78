"""What keeps an ECS cluster from being deleted: services, tasks, and nodes that are protected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from batchyard.aws.cloudformation import naming_admin_errors
from batchyard.aws.session import AwsRefusedError, AwsSession

_MAX_DESCRIBED_SERVICES = 10
_MAX_DESCRIBED_TASKS = 100
_GONE_CODES = ("ClusterNotFoundException", "ServiceNotFoundException", "ServiceNotActiveException")


class Clusters:
    def __init__(self, session: AwsSession) -> None:
        self._session = session

    @property
    def _ecs(self) -> Any:
        return self._session.client("ecs")

    # -- services and tasks ------------------------------------------------------------------------

    def services(self, cluster: str) -> list[Any]:
        """Return the services of a cluster with their tags; none if there is no such cluster."""
        with naming_admin_errors(f"list the services of {cluster}", "ecs"):
            arns = list(self._list("list_services", "serviceArns", cluster))
            return [
                service
                for chunk in _split(arns, _MAX_DESCRIBED_SERVICES)
                for service in self._ecs.describe_services(
                    cluster=cluster, services=chunk, include=["TAGS"]
                )["services"]
                if service["status"] == "ACTIVE"
            ]

    def tasks(self, cluster: str) -> list[Any]:
        """Return the tasks of a cluster that are not over."""
        with naming_admin_errors(f"list the tasks of {cluster}", "ecs"):
            arns = list(self._list("list_tasks", "taskArns", cluster))
            return [
                task
                for chunk in _split(arns, _MAX_DESCRIBED_TASKS)
                for task in self._ecs.describe_tasks(cluster=cluster, tasks=chunk)["tasks"]
            ]

    def _list(self, operation: str, member: str, cluster: str) -> Iterator[str]:
        try:
            for page in self._ecs.get_paginator(operation).paginate(cluster=cluster):
                yield from page[member]
        except self._ecs.exceptions.ClusterNotFoundException:
            return

    def delete_service(self, cluster: str, name: str) -> None:
        """Delete a service and stop its tasks. One that is gone is deleted."""
        try:
            with naming_admin_errors(f"delete the service {name}", "ecs"):
                self._ecs.delete_service(cluster=cluster, service=name, force=True)
        except AwsRefusedError as exc:
            if exc.code not in _GONE_CODES:
                raise

    def stop_task(self, cluster: str, arn: str) -> None:
        with naming_admin_errors(f"stop the task {arn}", "ecs"):
            self._ecs.stop_task(cluster=cluster, task=arn, reason="the cluster is being deleted")

    # -- nodes -------------------------------------------------------------------------------------

    def nodes(self, cluster: str) -> list[str]:
        """Return the container instances of a cluster that are not inactive."""
        with naming_admin_errors(f"list the nodes of {cluster}", "ecs"):
            return list(self._list("list_container_instances", "containerInstanceArns", cluster))

    def deregister_node(self, cluster: str, arn: str) -> None:
        with naming_admin_errors(f"deregister the node {arn}", "ecs"):
            self._ecs.deregister_container_instance(
                cluster=cluster, containerInstance=arn, force=True
            )

    def release_provider(self, name: str) -> str:
        """Let a capacity provider neither scale, protect nor drain; return its group, or ""."""
        with naming_admin_errors(f"change the capacity provider {name}", "ecs"):
            providers = self._ecs.describe_capacity_providers(capacityProviders=[name])
            for provider in providers["capacityProviders"]:
                arn = provider.get("autoScalingGroupProvider", {}).get("autoScalingGroupArn", "")
                if not arn or provider["status"] != "ACTIVE":
                    continue
                self._ecs.update_capacity_provider(
                    name=name,
                    autoScalingGroupProvider={
                        "managedScaling": {"status": "DISABLED"},
                        "managedTerminationProtection": "DISABLED",
                        "managedDraining": "DISABLED",
                    },
                )
                return str(arn).rpartition("autoScalingGroupName/")[2]
        return ""

    def empty_group(self, name: str) -> int:
        """Let an Auto Scaling group end all its nodes, protected ones too; return their number.

        A lifecycle hook of managed draining would hold nodes for two days when ECS no longer knows
        the group (aws/containers-roadmap#2862).
        """
        client = self._session.client("autoscaling")
        with naming_admin_errors(f"empty the Auto Scaling group {name}", "autoscaling"):
            groups = client.describe_auto_scaling_groups(AutoScalingGroupNames=[name])
            for group in groups["AutoScalingGroups"]:
                hooks = client.describe_lifecycle_hooks(AutoScalingGroupName=name)
                for hook in hooks["LifecycleHooks"]:
                    client.delete_lifecycle_hook(
                        LifecycleHookName=hook["LifecycleHookName"], AutoScalingGroupName=name
                    )
                ids = [instance["InstanceId"] for instance in group["Instances"]]
                for chunk in _split(ids, 50):
                    client.set_instance_protection(
                        InstanceIds=chunk, AutoScalingGroupName=name, ProtectedFromScaleIn=False
                    )
                client.update_auto_scaling_group(
                    AutoScalingGroupName=name,
                    MinSize=0,
                    MaxSize=0,
                    DesiredCapacity=0,
                    NewInstancesProtectedFromScaleIn=False,
                )
                return len(ids)
        return 0

    def empty_fleet(self, request_id: str) -> None:
        """Let a Spot Fleet end all its nodes."""
        with naming_admin_errors(f"empty the Spot Fleet {request_id}", "ec2"):
            self._session.client("ec2").modify_spot_fleet_request(
                SpotFleetRequestId=request_id, TargetCapacity=0
            )


def _split(items: Sequence[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])
