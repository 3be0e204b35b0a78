"""ECS: the hosts of a cluster, and a job's task. One call per method, AWS's shapes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchyard.aws.session import AwsSession, naming_errors

#: Largest number of hosts in one call.
MAX_HOSTS = 100


class Ecs:
    def __init__(self, session: AwsSession) -> None:
        self._session = session

    def host_arns(self, cluster: str) -> list[str]:
        """Return the first hundred container instances of the cluster."""
        with naming_errors("list the hosts of the cluster"):
            answer = self._session.client("ecs").list_container_instances(
                cluster=cluster, maxResults=MAX_HOSTS
            )
        return list(answer["containerInstanceArns"])

    def hosts(self, cluster: str, arns: Sequence[str]) -> list[Any]:
        """Return up to a hundred of the hosts: ECS has them for an hour after their end."""
        with naming_errors("describe the hosts of the cluster"):
            answer = self._session.client("ecs").describe_container_instances(
                cluster=cluster, containerInstances=list(arns)[:MAX_HOSTS]
            )
        return list(answer["containerInstances"])

    def task(self, cluster: str, arn: str) -> Any | None:
        with naming_errors("describe the job's task"):
            answer = self._session.client("ecs").describe_tasks(cluster=cluster, tasks=[arn])
        return answer["tasks"][0] if answer["tasks"] else None
