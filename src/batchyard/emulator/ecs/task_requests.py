"""RunTask, StartTask and StopTask."""

from __future__ import annotations

from batchyard.emulator import names
from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.ecs import clusters, instances, task_definitions
from batchyard.emulator.ecs.container_specs import invalid
from batchyard.emulator.ecs.placement import find_lack
from batchyard.emulator.ecs.records import EcsTask
from batchyard.emulator.ecs.surroundings import Cluster
from batchyard.emulator.ecs.task_descriptions import describe
from batchyard.emulator.ecs.task_states import Stop
from batchyard.emulator.ecs.tasks import (
    Failure,
    TaskRequest,
    add,
    begin,
    create_tasks,
    find_provider,
    find_task,
    machine_room,
    make_task,
    request_stop,
)
from batchyard.emulator.state import Document, EndpointState

_MAX_COUNT = 10
_MAX_STARTED_BY, _MAX_TOKEN, _MAX_PROVISIONING = 128, 64, 500


def run_task(state: EndpointState, request: Document) -> Document:
    count = request.get("count", 1)
    if not 1 <= count <= _MAX_COUNT:
        raise invalid(f"count must be between 1 and {_MAX_COUNT}; got {count}")
    parsed = read_request(state, request)
    key, earlier = _find_earlier(state, parsed.cluster, request)
    if earlier is not None:
        return {"tasks": [describe(state, task) for task in earlier], "failures": []}
    if parsed.launch_type == "EC2":
        _check_cluster(state, parsed, count)
    tasks, failures = create_tasks(state, parsed, count)
    if key is not None and tasks:
        state.ecs.client_tokens[key] = (request, [task.task_id for task in tasks])
    return {
        "tasks": [describe(state, task) for task in tasks],
        "failures": [failure.describe() for failure in failures],
    }


def _check_cluster(state: EndpointState, request: TaskRequest, count: int) -> None:
    """Raise ApiError for a cluster without instances, or with too many tasks that wait for one."""
    if request.capacity_provider:
        if _count_provisioning(state, request.cluster) + count > _MAX_PROVISIONING:
            raise ApiError(
                "ClientException",
                f"The cluster has {_MAX_PROVISIONING} tasks in the PROVISIONING state, the limit.",
            )
        return
    in_cluster = instances.instances_of(state, request.cluster.name)
    if not any(instance.status == "ACTIVE" for instance in in_cluster):
        raise invalid("No Container Instances were found in your cluster.")


def start_task(state: EndpointState, request: Document) -> Document:
    """StartTask: one task on each named container instance."""
    parsed = read_request(state, {**request, "launchType": "EC2"})
    named = request["containerInstances"]
    if not 1 <= len(named) <= _MAX_COUNT:
        raise invalid(f"containerInstances must name 1 to {_MAX_COUNT} instances.")
    tasks, failures = [], []
    for name in named:
        instance = instances.find(state, parsed.cluster.name, name)
        task = make_task(state, parsed)
        is_inactive = names.strip_arn(name) in state.ecs.removed_instances.values()
        reason = "INACTIVE" if is_inactive else "MISSING"
        if instance is not None:
            lack = find_lack(task.spec.need, state.ecs.room_of(instance))
            reason = lack or find_lack(task.spec.need, machine_room(state)) or ""
        if instance is None or reason:
            failures.append(Failure(name if instance is None else instance.arn, reason))
            continue
        add(state, task)
        begin(state, task, instance)
        tasks.append(task)
    return {
        "tasks": [describe(state, task) for task in tasks],
        "failures": [failure.describe() for failure in failures],
    }


def _find_earlier(
    state: EndpointState, cluster: Cluster, request: Document
) -> tuple[tuple[str, str] | None, list[EcsTask] | None]:
    """Return the key of a clientToken, and the tasks of an earlier request with it."""
    token = request.get("clientToken")
    if not token:
        return None, None
    if len(token) > _MAX_TOKEN:
        raise invalid(f"clientToken must be at most {_MAX_TOKEN} characters.")
    key = (cluster.name, token)
    earlier_request, task_ids = state.ecs.client_tokens.get(key, (None, []))
    if earlier_request is None:
        return key, None
    known_tasks = [state.ecs.tasks[task_id] for task_id in task_ids if task_id in state.ecs.tasks]
    if earlier_request != request:
        raise ConflictError([task.arn for task in known_tasks])
    return key, known_tasks


class ConflictError(ApiError):
    """A clientToken that an earlier request with other members had."""

    def __init__(self, resource_ids: list[str]) -> None:
        message = "The clientToken was used by a request with other parameters."
        super().__init__("ConflictException", message)
        self.members = {"resourceIds": resource_ids}


def _count_provisioning(state: EndpointState, cluster: Cluster) -> int:
    tasks = state.ecs.live_tasks()
    return sum(not task.is_placed and task.cluster.name == cluster.name for task in tasks)


def stop_task(state: EndpointState, request: Document) -> Document:
    cluster = clusters.require(state, request)
    task = find_task(state, cluster.name, request["task"])
    if task is None:
        raise invalid("The referenced task was not found.")
    reason = request.get("reason") or "Task stopped by user"
    request_stop(state, task, Stop("UserInitiated", reason))
    return {"task": describe(state, task)}


def execute_command(state: EndpointState, request: Document) -> Document:
    """ExecuteCommand: refuse it, as there is no Session Manager. Raises ApiError."""
    cluster = clusters.require(state, request)
    task = find_task(state, cluster.name, request["task"])
    if task is None or task.is_stopped:
        raise invalid("The referenced task was not found.")
    if not task.placement.get("enableExecuteCommand"):
        raise invalid(
            "The execute command failed because execute command was not enabled when the task was "
            "run or the execute command agent isn't running. Wait and try again or run a new task "
            "with execute command enabled and try again."
        )
    raise ApiError(
        "TargetNotConnectedException",
        "The execute command failed: batchyard's endpoint has no ExecuteCommand. Its tasks run on "
        "this machine, where you can look at them with docker exec or in /proc.",
    )


# -- requests -------------------------------------------------------------------------------------


def read_request(state: EndpointState, request: Document) -> TaskRequest:
    """Return what a request asks for. Raises ApiError."""
    cluster = clusters.require_active(state, request)
    definition = task_definitions.require_active(state, request["taskDefinition"])
    if len(request.get("startedBy", "")) > _MAX_STARTED_BY:
        raise invalid(f"startedBy must be at most {_MAX_STARTED_BY} characters.")
    return make_request(state, cluster, definition, request)


def make_request(
    state: EndpointState, cluster: Cluster, definition: Document, request: Document
) -> TaskRequest:
    """Return the request for tasks of a definition. Raises ApiError."""
    launch_type, provider = choose_capacity(state, cluster, request)
    if launch_type == "FARGATE" and "FARGATE" not in definition["compatibilities"]:
        raise invalid("Task definition does not support launch_type FARGATE.")
    is_awsvpc = definition["networkMode"] == "awsvpc"
    if is_awsvpc and "awsvpcConfiguration" not in request.get("networkConfiguration", {}):
        raise invalid(
            "Network Configuration must be provided when networkMode 'awsvpc' is specified."
        )
    if not is_awsvpc and "networkConfiguration" in request:
        raise invalid(
            "Network Configuration is not valid for the given networkMode of this task definition."
        )
    members = (
        "placementConstraints",
        "placementStrategy",
        "networkConfiguration",
        "enableExecuteCommand",
    )
    return TaskRequest(
        cluster,
        definition,
        request.get("overrides", {}),
        launch_type,
        provider,
        request.get("group") or f"family:{definition['family']}",
        request.get("startedBy", ""),
        _make_tags(cluster, definition, request),
        {member: request[member] for member in members if member in request},
    )


def choose_capacity(state: EndpointState, cluster: Cluster, request: Document) -> tuple[str, str]:
    """Return the launch type and the capacity provider, one of them empty. Raises ApiError."""
    strategy = request.get("capacityProviderStrategy")
    if strategy and "launchType" in request:
        raise invalid(
            "Specifying both a launch type and capacity provider strategy is not supported. "
            "Remove one and try again."
        )
    if "launchType" not in request:
        strategy = strategy or cluster.default_strategy
    if not strategy:
        return request.get("launchType", "EC2"), ""
    # The provider with a base or the largest weight takes all tasks.
    chosen = max(strategy, key=lambda entry: (entry.get("base", 0), entry.get("weight", 0)))
    name = chosen["capacityProvider"]
    if name in ("FARGATE", "FARGATE_SPOT"):
        return "FARGATE", name
    if find_provider(state, names.strip_arn(name)) is None:
        raise invalid(
            "The specified capacity provider was not found. Specify a valid name or ARN and try "
            "again."
        )
    return "EC2", names.strip_arn(name)


def _make_tags(cluster: Cluster, definition: Document, request: Document) -> list[Document]:
    tags = {entry.get("key", ""): entry.get("value", "") for entry in request.get("tags", [])}
    if request.get("propagateTags") == "TASK_DEFINITION":
        inherited = {entry.get("key", ""): entry.get("value", "") for entry in definition["_tags"]}
        tags = inherited | tags
    if request.get("enableECSManagedTags"):
        tags["aws:ecs:clusterName"] = cluster.name
    return [{"key": key, "value": value} for key, value in tags.items()]
