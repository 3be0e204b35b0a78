"""ListTasks and DescribeTasks of the clusters of compute environments: the attempts of jobs."""

from __future__ import annotations

from batchyard.embedded.runner import Task
from batchyard.embedded.store import AttemptRow
from batchyard.emulator import ecs_clusters, hosts, names
from batchyard.emulator.compute_environments import is_fargate
from batchyard.emulator.ecs import task_descriptions
from batchyard.emulator.state import JOB, Document, EndpointState

#: ECS keeps ended tasks for about an hour.
_MAX_ENDED_AGE_MS = 3_600_000
_MAX_TASKS = 100


def list_tasks(state: EndpointState, request: Document) -> Document:
    """List running tasks, or ended ones with desiredStatus STOPPED; at most 100."""
    environment = ecs_clusters.find_environment(state, request)
    if environment is None:
        return task_descriptions.list_tasks(state, request)
    container_instance = request.get("containerInstance")
    if request.get("desiredStatus", "RUNNING") == "STOPPED":
        return {"taskArns": _list_ended(state, environment, container_instance)}
    tasks = [
        task
        for task in ecs_clusters.running_tasks(state, environment)
        if _is_on(state, environment, task.host_id, container_instance)
    ]
    cluster = ecs_clusters.cluster_name(environment)
    return {
        "taskArns": [
            names.task_arn(state.region, cluster, names.task_id(_key(task), state.salt))
            for task in tasks[:_MAX_TASKS]
        ]
    }


def _list_ended(
    state: EndpointState, environment: Document, container_instance: str | None
) -> list[str]:
    """Return the ARNs of tasks that ended within the last hour, those of new jobs first."""
    cluster = ecs_clusters.cluster_name(environment)
    job_ids = [job_id for job_id, _ in state.items(JOB)]
    arns: list[str] = []
    for job_id in reversed(job_ids):
        for row in state.read_attempts(job_id):
            if (
                row.attempt
                and row.compute_environment == environment["computeEnvironmentName"]
                and state.now_ms() - row.ended_ms <= _MAX_ENDED_AGE_MS
                and _is_on(state, environment, row.host_id, container_instance)
            ):
                key = names.AttemptKey(row.job, row.child, row.attempt)
                arns.append(names.task_arn(state.region, cluster, names.task_id(key, state.salt)))
            if len(arns) == _MAX_TASKS:
                return arns
    return arns


def describe_tasks(state: EndpointState, request: Document) -> Document:
    environment = ecs_clusters.find_environment(state, request)
    if environment is None:
        return task_descriptions.describe_tasks(state, request)
    descriptions = {name: _describe(state, environment, name) for name in request["tasks"]}
    return {
        "tasks": [description for description in descriptions.values() if description is not None],
        "failures": [
            {"arn": name, "reason": "MISSING"}
            for name, description in descriptions.items()
            if description is None
        ],
    }


def _describe(state: EndpointState, environment: Document, name: str) -> Document | None:
    """Describe the task of an attempt; return None if the cluster does not know the task."""
    key = names.parse_task_id(names.strip_arn(name), state.salt)
    job = None if key is None else state.job_with_number(key.job_number)
    if key is None or job is None:
        return None
    task = state.loop.find_running_task(job["jobId"], key.child)
    if task is not None and task.attempt == key.attempt:
        if task.compute_environment != environment["computeEnvironmentName"]:
            return None
        return _describe_running(state, environment, job, task)
    rows = state.read_attempts(job["jobId"], key.child)
    row = next((row for row in rows if row.attempt == key.attempt), None)
    if row is None or row.compute_environment != environment["computeEnvironmentName"]:
        return None
    if state.now_ms() - row.ended_ms > _MAX_ENDED_AGE_MS:
        return None
    return _describe_ended(state, environment, job, row)


def _describe_running(
    state: EndpointState, environment: Document, job: Document, task: Task
) -> Document:
    status = "PENDING" if task.started_ms is None else "RUNNING"
    description = _common_members(state, environment, job, _key(task), task.host_id)
    description |= {"lastStatus": status, "desiredStatus": "RUNNING"}
    description["containers"][0]["lastStatus"] = status
    if task.started_ms is not None:
        description["startedAt"] = task.started_ms / 1000
    return description


def _describe_ended(
    state: EndpointState, environment: Document, job: Document, row: AttemptRow
) -> Document:
    key = names.AttemptKey(row.job, row.child, row.attempt)
    description = _common_members(state, environment, job, key, row.host_id)
    is_started = row.started_ms is not None
    description |= {
        "lastStatus": "STOPPED",
        "desiredStatus": "STOPPED",
        "stoppedAt": row.ended_ms / 1000,
        "stoppedReason": row.status_reason,
        "stopCode": "EssentialContainerExited" if is_started else "TaskFailedToStart",
    }
    container = description["containers"][0]
    container["lastStatus"] = "STOPPED"
    if row.exit_code is not None:
        container["exitCode"] = row.exit_code
    if row.reason:
        container["reason"] = row.reason
    if row.started_ms is not None:
        description["startedAt"] = row.started_ms / 1000
    return description


def _common_members(
    state: EndpointState,
    environment: Document,
    job: Document,
    key: names.AttemptKey,
    host_id: str,
) -> Document:
    cluster = ecs_clusters.cluster_name(environment)
    arn = names.task_arn(state.region, cluster, names.task_id(key, state.salt))
    definition = names.strip_arn(job["jobDefinition"]).replace(":", "-")
    requested = job["_resources"]
    description: Document = {
        "taskArn": arn,
        "clusterArn": environment["ecsClusterArn"],
        "taskDefinitionArn": names.arn("ecs", state.region, f"task-definition/{definition}:1"),
        "launchType": "FARGATE" if is_fargate(environment) else "EC2",
        "cpu": str(requested["vcpus"] * 1024),
        "memory": str(requested["memory_mib"]),
        "createdAt": job["createdAt"] / 1000,
        "group": f"family:{definition}",
        "containers": [
            {
                "taskArn": arn,
                "name": "default",
                "image": job["container"]["image"],
                "networkInterfaces": [],
            }
        ],
        "attachments": [],
        "attributes": [],
        "overrides": {"containerOverrides": []},
        "tags": [],
        "version": 1,
    }
    container_instance = hosts.container_instance_arn(state, environment, host_id)
    if container_instance:
        description["containerInstanceArn"] = container_instance
    return description


def _is_on(
    state: EndpointState, environment: Document, host_id: str, container_instance: str | None
) -> bool:
    """Return whether a task is on the requested container instance; None stands for any."""
    if container_instance is None:
        return True
    arn = hosts.container_instance_arn(state, environment, host_id)
    return names.strip_arn(arn) == names.strip_arn(container_instance)


def _key(task: Task) -> names.AttemptKey:
    return names.AttemptKey(task.job_number, task.child, task.attempt)
