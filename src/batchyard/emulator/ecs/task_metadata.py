"""The task metadata endpoint, version 4, which containers find by ECS_CONTAINER_METADATA_URI_V4."""

from __future__ import annotations

from datetime import UTC, datetime

from batchyard.emulator.ecs.records import Container, EcsTask
from batchyard.emulator.ecs.task_descriptions import container_status, status_of
from batchyard.emulator.state import Document, EndpointState


def answer(state: EndpointState, task_id: str, path: str) -> Document | None:
    """Answer a path below `/v4/`: the runtime id of a container, and what is asked about it.

    Returns None for a task, container or path that does not exist.
    """
    task = state.ecs.tasks.get(task_id)
    runtime_id, _, subject = path.partition("/")
    if task is None:
        return None
    container = next((c for c in task.containers if c.runtime_id == runtime_id), None)
    if container is None:
        return None
    if not subject:
        return _describe_container(task, container)
    if subject in ("task", "taskWithTags"):
        has_tags = subject == "taskWithTags"
        return _describe_task(task) | (_tags(task) if has_tags else {})
    if subject == "stats":
        return _stats(container)
    if subject == "task/stats":
        return {each.runtime_id: _stats(each) for each in task.containers}
    return None


def role_of(state: EndpointState, task_id: str) -> str:
    """Return the role of a task; empty for none."""
    task = state.ecs.tasks.get(task_id)
    return "" if task is None else task.spec.task_role or ""


def _describe_task(task: EcsTask) -> Document:
    return {
        "Cluster": task.cluster.arn,
        "TaskARN": task.arn,
        "Family": task.family,
        "Revision": str(task.definition["revision"]),
        "DesiredStatus": "RUNNING" if task.stopping_s is None else "STOPPED",
        "KnownStatus": status_of(task),
        "Limits": {
            "CPU": task.spec.need.cpu_units / 1024,
            "Memory": task.spec.need.memory_mib,
        },
        "PullStartedAt": _text(task.placed_s),
        "PullStoppedAt": _text(task.placed_s),
        "AvailabilityZone": task.instance.zone if task.instance else "",
        "LaunchType": task.launch_type,
        "Containers": [_describe_container(task, container) for container in task.containers],
        **(
            {"ServiceName": task.group.removeprefix("service:")}
            if task.group.startswith("service:")
            else {}
        ),
    }


def _describe_container(task: EcsTask, container: Container) -> Document:
    spec = container.spec
    logs = spec.container["logConfiguration"]
    name = (
        f"ecs-{task.family}-{task.definition['revision']}-{spec.name}-{container.runtime_id[:20]}"
    )
    document: Document = {
        "DockerId": container.runtime_id,
        "Name": spec.name,
        "DockerName": name,
        "Image": spec.image,
        "ImageID": "",
        "Labels": {
            "com.amazonaws.ecs.cluster": task.cluster.name,
            "com.amazonaws.ecs.container-name": spec.name,
            "com.amazonaws.ecs.task-arn": task.arn,
            "com.amazonaws.ecs.task-definition-family": task.family,
            "com.amazonaws.ecs.task-definition-version": str(task.definition["revision"]),
        },
        "DesiredStatus": "RUNNING" if task.stopping_s is None else "STOPPED",
        "KnownStatus": container_status(task, container),
        "Limits": {"CPU": spec.need.cpu_units, "Memory": spec.memory_limit_mib or 0},
        "CreatedAt": _text(task.placed_s),
        "Type": "NORMAL",
        "LogDriver": logs["logDriver"],
        "LogOptions": {
            **logs.get("options", {}),
            **_stream_option(task, container, logs.get("options", {})),
        },
        "ContainerARN": f"{task.arn.replace(':task/', ':container/')}/{container.job_id}",
        "Networks": [{"NetworkMode": "host", "IPv4Addresses": ["127.0.0.1"]}],
    }
    if container.started_ms is not None:
        document["StartedAt"] = _text(container.started_ms / 1000)
    if container.end is not None:
        document["FinishedAt"] = _text(container.end.ended_ms / 1000)
        if container.end.exit_code is not None:
            document["ExitCode"] = container.end.exit_code
    return document


def _stream_option(task: EcsTask, container: Container, options: Document) -> Document:
    """Return the name of the log stream, which clients read here to find their own log."""
    prefix = options.get("awslogs-stream-prefix")
    if not prefix:
        return {}
    return {"awslogs-stream": f"{prefix}/{container.spec.name}/{task.task_id}"}


def _tags(task: EcsTask) -> Document:
    return {"TaskTags": {tag.get("key", ""): tag.get("value", "") for tag in task.tags}}


def _stats(container: Container) -> Document:
    """Return the members of Docker's stats that clients read; the endpoint measures nothing."""
    return {"id": container.runtime_id, "name": container.spec.name, "cpu_stats": {}}


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
