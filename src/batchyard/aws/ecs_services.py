"""Services of ECS: their state, tasks and nodes. One call per method, AWS's shapes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchyard.aws.cloudformation import naming_admin_errors
from batchyard.aws.session import AwsRefusedError, AwsSession, naming_errors

#: Largest number of tasks or container instances in one call.
_MAX_DESCRIBED = 100


class EcsServices:
    def __init__(self, session: AwsSession) -> None:
        self._session = session

    @property
    def _client(self) -> Any:
        return self._session.client("ecs")

    def service(self, cluster: str, name: str) -> Any | None:
        """Return a service that is not deleted; None if there is none, or no such cluster."""
        try:
            with naming_errors(f"describe the service {name}"):
                answer = self._client.describe_services(cluster=cluster, services=[name])
        except AwsRefusedError as exc:
            if exc.code == "ClusterNotFoundException":
                return None
            raise
        services = [entry for entry in answer["services"] if entry["status"] != "INACTIVE"]
        return services[0] if services else None

    def tasks(self, cluster: str, family: str, status: str) -> list[Any]:
        """Return up to a hundred tasks of a family; ``status`` is RUNNING or STOPPED.

        AWS shows stopped tasks for about an hour.
        """
        with naming_errors(f"list the tasks of {family}"):
            arns = self._client.list_tasks(
                cluster=cluster, family=family, desiredStatus=status, maxResults=_MAX_DESCRIBED
            )["taskArns"]
            if not arns:
                return []
            return list(self._client.describe_tasks(cluster=cluster, tasks=arns)["tasks"])

    def instance_ids(self, cluster: str, arns: Sequence[str]) -> dict[str, str]:
        """Return container instance -> id of its EC2 instance."""
        if not arns:
            return {}
        with naming_errors("describe the nodes of the cluster"):
            answer = self._client.describe_container_instances(
                cluster=cluster, containerInstances=list(arns)[:_MAX_DESCRIBED]
            )
        return {
            entry["containerInstanceArn"]: str(entry.get("ec2InstanceId", ""))
            for entry in answer["containerInstances"]
        }

    def restart(self, cluster: str, name: str) -> Any:
        """Begin a deployment that replaces all tasks of a service, and return the service."""
        with naming_admin_errors(f"restart the service {name}", "ecs"):
            answer = self._client.update_service(
                cluster=cluster, service=name, forceNewDeployment=True
            )
        return answer["service"]
