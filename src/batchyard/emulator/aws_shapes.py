"""Members that AWS adds to the descriptions of job definitions and jobs.

AWS Batch sends empty lists where a request left a list out (facts, 1.2), and describes the job of a
definition with `ecsProperties` as a task with containers.
"""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]

DEFAULT_CONTAINER_NAME = "default"
_CONTAINER_LISTS = (
    "command",
    "environment",
    "mountPoints",
    "volumes",
    "ulimits",
    "resourceRequirements",
    "secrets",
)
#: The volumes of ecsProperties belong to the task.
_TASK_CONTAINER_LISTS = (*(name for name in _CONTAINER_LISTS if name != "volumes"), "dependsOn")
#: Member of a container -> the empty members that AWS adds to it.
_NESTED_MEMBERS: dict[str, Document] = {
    "logConfiguration": {"options": {}, "secretOptions": []},
    "linuxParameters": {"devices": [], "tmpfs": []},
}
#: Members of a job's container that differ from those in its definition, or show its result.
_JOB_CONTAINER_MEMBERS = (
    "command",
    "environment",
    "resourceRequirements",
    "exitCode",
    "reason",
    "logStreamName",
    "networkInterfaces",
)
_ATTEMPT_CONTAINER_MEMBERS = ("exitCode", "reason", "logStreamName", "networkInterfaces")
_TASK_ARNS = ("containerInstanceArn", "taskArn")


def complete_container(container: Document) -> Document:
    """Return containerProperties, or the container of a job, with the members that AWS adds."""
    return _complete(container, _CONTAINER_LISTS)


def complete_task(task: Document) -> Document:
    """Return a task of ecsProperties with the members that AWS adds."""
    containers = [
        {"name": DEFAULT_CONTAINER_NAME, **_complete(container, _TASK_CONTAINER_LISTS)}
        for container in task["containers"]
    ]
    return {"volumes": [], **task, "containers": containers}


def _complete(container: Document, lists: tuple[str, ...]) -> Document:
    completed: Document = {**{name: [] for name in lists}, **container}
    for member, empty_members in _NESTED_MEMBERS.items():
        if member in container:
            completed[member] = {**empty_members, **container[member]}
    return completed


def describe_as_task(detail: Document, task: Document) -> Document:
    """Return a JobDetail with `ecsProperties` in the place of `container`.

    ``task`` is the task in the ecsProperties of the job's definition; it has one container.
    """
    container = detail["container"]
    described_container = task["containers"][0] | _select(container, _JOB_CONTAINER_MEMBERS)
    described_task = task | _select(container, _TASK_ARNS) | {"containers": [described_container]}
    name = task["containers"][0]["name"]
    return {
        **{member: value for member, value in detail.items() if member != "container"},
        "attempts": [_describe_attempt(attempt, name) for attempt in detail["attempts"]],
        "ecsProperties": {"taskProperties": [described_task]},
    }


def _describe_attempt(attempt: Document, container_name: str) -> Document:
    container = attempt["container"]
    described = {"name": container_name, **_select(container, _ATTEMPT_CONTAINER_MEMBERS)}
    task = {**_select(container, _TASK_ARNS), "containers": [described]}
    members = {member: value for member, value in attempt.items() if member != "container"}
    return {**members, "taskProperties": [task]}


def _select(document: Document, members: tuple[str, ...]) -> Document:
    return {member: document[member] for member in members if member in document}
