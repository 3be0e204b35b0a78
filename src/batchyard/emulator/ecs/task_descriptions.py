"""ListTasks and DescribeTasks."""

from __future__ import annotations

from batchyard.emulator import names
from batchyard.emulator.ecs import clusters
from batchyard.emulator.ecs.container_specs import invalid
from batchyard.emulator.ecs.paging import page
from batchyard.emulator.ecs.records import Container, EcsTask
from batchyard.emulator.ecs.task_states import last_status
from batchyard.emulator.ecs.tasks import find_task
from batchyard.emulator.state import Document, EndpointState

_MAX_DESCRIBED = 100


def describe_tasks(state: EndpointState, request: Document) -> Document:
    cluster = clusters.require(state, request)
    requested = request["tasks"]
    if not 1 <= len(requested) <= _MAX_DESCRIBED:
        raise invalid(f"Tasks cannot be empty, and must be at most {_MAX_DESCRIBED}.")
    by_name = {name: find_task(state, cluster.name, name) for name in requested}
    has_tags = "TAGS" in request.get("include", [])
    return {
        "tasks": [describe(state, task, has_tags=has_tags) for task in by_name.values() if task],
        "failures": [
            {"arn": _task_arn(state, cluster.name, name), "reason": "MISSING"}
            for name, task in by_name.items()
            if task is None
        ],
    }


def _task_arn(state: EndpointState, cluster: str, name: str) -> str:
    return name if name.startswith("arn:") else names.task_arn(state.region, cluster, name)


def list_tasks(state: EndpointState, request: Document) -> Document:
    cluster = clusters.require(state, request)
    wants_stopped = request.get("desiredStatus", "RUNNING") == "STOPPED"
    service = names.strip_arn(request.get("serviceName", ""))
    instance = names.strip_arn(request.get("containerInstance", ""))
    arns = [
        task.arn
        for task in state.ecs.tasks.values()
        if task.cluster.name == cluster.name
        and (task.stopping_s is not None or task.is_stopped) == wants_stopped
        and request.get("family", task.family) == task.family
        and request.get("startedBy", task.started_by) == task.started_by
        and request.get("launchType", task.launch_type) == task.launch_type
        and (not service or task.group == f"service:{service}")
        and (not instance or (task.instance is not None and task.instance.id == instance))
    ]
    return page("taskArns", arns, request)


def status_of(task: EcsTask) -> str:
    return last_status(
        [container.view() for container in task.containers],
        is_placed=task.is_placed,
        is_stopping=task.stopping_s is not None,
        is_stopped=task.is_stopped,
    )


def describe(state: EndpointState, task: EcsTask, *, has_tags: bool = True) -> Document:
    is_ending = task.stopping_s is not None or task.is_stopped
    document: Document = {
        "taskArn": task.arn,
        "clusterArn": task.cluster.arn,
        "taskDefinitionArn": task.definition["taskDefinitionArn"],
        "lastStatus": status_of(task),
        "desiredStatus": "STOPPED" if is_ending else "RUNNING",
        "group": task.group,
        "launchType": task.launch_type,
        "createdAt": task.created_s,
        "version": task.version,
        "cpu": task.spec.cpu or str(task.spec.need.cpu_units),
        "memory": task.spec.memory or str(task.spec.need.memory_mib),
        "overrides": {"containerOverrides": [], "inferenceAcceleratorOverrides": []}
        | task.overrides,
        "availabilityZone": task.instance.zone if task.instance else f"{state.region}a",
        "attachments": _attachments(task),
        "attributes": [{"name": "ecs.cpu-architecture", "value": "x86_64"}],
        "enableExecuteCommand": task.placement.get("enableExecuteCommand", False),
        "healthStatus": task.health,
        "inferenceAccelerators": [],
        # A task that never came to an instance has no containers.
        "containers": [_describe_container(task, c) for c in task.containers]
        if task.is_placed or not task.is_stopped
        else [],
        "tags": task.tags if has_tags else [],
    }
    document |= _optional_members(task)
    return document


def _optional_members(task: EcsTask) -> Document:
    members: Document = {
        "startedBy": task.started_by or None,
        "capacityProviderName": task.capacity_provider or None,
        "containerInstanceArn": task.instance.arn if task.instance else None,
        "startedAt": task.started_s,
        "stoppingAt": task.stopping_s,
        "stoppedAt": task.stopped_s,
        "stopCode": task.stop_code or None,
        "stoppedReason": task.stopped_reason or None,
    }
    if task.is_placed:
        members |= {"connectivity": "CONNECTED", "connectivityAt": task.placed_s}
    if any(c.started_ms is not None for c in task.containers):
        members |= {"pullStartedAt": task.placed_s, "pullStoppedAt": task.placed_s}
    if task.stopped_s is not None:
        members["executionStoppedAt"] = task.stopped_s
    return {key: value for key, value in members.items() if value is not None}


def _describe_container(task: EcsTask, container: Container) -> Document:
    document: Document = {
        "containerArn": f"{task.arn.replace(':task/', ':container/')}/{container.job_id}",
        "taskArn": task.arn,
        "name": container.spec.name,
        "image": container.spec.image,
        "runtimeId": container.runtime_id,
        "lastStatus": container_status(task, container),
        "networkBindings": _bindings(container),
        "networkInterfaces": _interfaces(task),
        "healthStatus": container.health,
        "cpu": str(container.spec.need.cpu_units),
    }
    if container.spec.memory_limit_mib is not None:
        document["memory"] = str(container.spec.memory_limit_mib)
    if container.gpu_ids:
        document["gpuIds"] = list(container.gpu_ids)
    end = container.end
    # A container that never ran has no exit code.
    if end is not None and end.exit_code is not None and container.started_ms is not None:
        document["exitCode"] = end.exit_code
    if end is not None and end.reason:
        document["reason"] = end.reason
    return document


def _bindings(container: Container) -> list[Document]:
    """Return the ports of a container that runs. The endpoint does not translate ports."""
    if container.started_ms is None or container.end is not None:
        return []
    return [
        {"bindIP": "0.0.0.0", "containerPort": port, "hostPort": port, "protocol": "tcp"}
        for port in sorted(container.spec.open_ports)
    ]


def container_status(task: EcsTask, container: Container) -> str:
    if container.end is not None or task.is_stopped:
        return "STOPPED"
    return "PENDING" if container.started_ms is None else "RUNNING"


def _interfaces(task: EcsTask) -> list[Document]:
    if task.interface is None:
        return []
    attachment = {"attachmentId": _attachment_id(task)}
    return [{**attachment, "privateIpv4Address": task.interface.private_address}]


def _attachments(task: EcsTask) -> list[Document]:
    interface = task.interface
    if interface is None:
        return []
    details = {
        "subnetId": interface.subnet,
        "networkInterfaceId": interface.interface_id,
        "macAddress": interface.mac_address,
        "privateIPv4Address": interface.private_address,
    }
    return [
        {
            "id": _attachment_id(task),
            "type": "ElasticNetworkInterface",
            "status": "DELETED" if task.is_stopped else "ATTACHED",
            "details": [{"name": name, "value": value} for name, value in details.items()],
        }
    ]


def _attachment_id(task: EcsTask) -> str:
    return f"{task.containers[0].job_id[:-12]}{task.task_id[:12]}"
