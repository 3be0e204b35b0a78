"""ECS: clusters and their hosts, task definitions and tasks. AWS's shapes in and out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from batchyard.aws.session import AwsRefusedError, AwsSession, naming_errors

#: Largest number of hosts in one call.
MAX_HOSTS = 100
#: Largest number of tasks in one DescribeTasks, and in one RunTask.
MAX_DESCRIBED_TASKS, MAX_STARTED_TASKS = 100, 10


class StartedTasks(NamedTuple):
    """The answer of RunTask."""

    arns: list[str]
    #: Why the other tasks were not started, such as RESOURCE:GPU; one reason for each host.
    refusals: list[str]


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

    def cluster(self, name: str) -> Any | None:
        """Return the cluster; None if it does not exist, or is not active."""
        with naming_errors(f"describe the cluster {name}"):
            answer = self._session.client("ecs").describe_clusters(clusters=[name])
        clusters = [entry for entry in answer["clusters"] if entry["status"] == "ACTIVE"]
        return clusters[0] if clusters else None

    def capacity_providers(self, names: Sequence[str]) -> list[Any]:
        """Return those of the capacity providers that exist."""
        with naming_errors("describe capacity providers"):
            answer = self._session.client("ecs").describe_capacity_providers(
                capacityProviders=list(names)
            )
        return list(answer["capacityProviders"])

    def find_definition(self, family: str) -> str | None:
        """Return the ARN of the latest active revision of a task definition; None if none is."""
        try:
            with naming_errors(f"describe the task definition {family}"):
                client = self._session.client("ecs")
                answer = client.describe_task_definition(taskDefinition=family)
        except AwsRefusedError as exc:
            if exc.code == "ClientException":
                return None
            raise
        return str(answer["taskDefinition"]["taskDefinitionArn"])

    def register_definition(self, request: Mapping[str, Any]) -> str:
        """Register a task definition, and return its ARN."""
        with naming_errors(f"register the task definition {request['family']}"):
            answer = self._session.client("ecs").register_task_definition(**request)
        return str(answer["taskDefinition"]["taskDefinitionArn"])

    def run_tasks(self, request: Mapping[str, Any]) -> StartedTasks:
        """Start tasks. A request with the clientToken of an earlier one returns its tasks."""
        try:
            with naming_errors("start a task"):
                answer = self._session.client("ecs").run_task(**request)
        except AwsRefusedError as exc:
            if exc.code != "ConflictException":
                raise
            # The definition has another revision now; the tasks are there.
            response = getattr(exc.__cause__, "response", {})
            return StartedTasks(list(response.get("resourceIds", [])), [])
        return StartedTasks(
            [task["taskArn"] for task in answer["tasks"]],
            [failure.get("reason", "") for failure in answer["failures"]],
        )

    def describe_tasks(self, cluster: str, arns: Sequence[str]) -> dict[str, Any]:
        """Return ARN -> task, of at most 100 tasks; without those that ECS does not know."""
        with naming_errors("describe the tasks"):
            client = self._session.client("ecs")
            answer = client.describe_tasks(cluster=cluster, tasks=list(arns))
        return {task["taskArn"]: task for task in answer["tasks"]}

    def find_running_tasks(self, cluster: str, started_by: str) -> dict[str, dict[str, str]]:
        """Return ARN -> tags of the tasks that somebody has started and that are not over."""
        client = self._session.client("ecs")
        with naming_errors("list the tasks"):
            pages = client.get_paginator("list_tasks").paginate(
                cluster=cluster, startedBy=started_by, maxResults=MAX_DESCRIBED_TASKS
            )
            by_page = [page["taskArns"] for page in pages if page["taskArns"]]
            answers = [
                client.describe_tasks(cluster=cluster, tasks=arns, include=["TAGS"])
                for arns in by_page
            ]
        return {
            task["taskArn"]: {tag["key"]: tag["value"] for tag in task.get("tags", [])}
            for answer in answers
            for task in answer["tasks"]
        }

    def stop_task(self, cluster: str, arn: str, reason: str) -> None:
        """Request the end of a task. A task that ECS has forgotten is over."""
        try:
            with naming_errors("stop a task"):
                self._session.client("ecs").stop_task(cluster=cluster, task=arn, reason=reason)
        except AwsRefusedError as exc:
            if exc.code not in ("InvalidParameterException", "ClientException"):
                raise
