"""Tasks and the engine: a task is placed, and its containers become jobs.

All containers of ECS wait in one queue of the engine, whose capacity is this machine. A task that
was placed is PENDING while the machine has no room for it. One container holds the room of the
whole task, so that no task waits for room that its own or other waiting tasks hold in part.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from batchyard.batch.jobs import Job, JobState, Resources
from batchyard.batch.queues import ComputeEnvironment, Queue
from batchyard.embedded.store import JobRow
from batchyard.emulator import names
from batchyard.emulator.ecs import instances
from batchyard.emulator.ecs.container_specs import (
    find_oversized_container,
    invalid,
    make_task_spec,
)
from batchyard.emulator.ecs.container_tasks import make_document
from batchyard.emulator.ecs.placement import Candidate, Room, Rules, choose_room, find_lack
from batchyard.emulator.ecs.records import Container, ContainerInstance, EcsTask
from batchyard.emulator.ecs.surroundings import Cluster, Provider
from batchyard.emulator.ecs.task_states import Stop, containers_to_begin
from batchyard.emulator.faults import TaskFault
from batchyard.emulator.state import Document, EndpointState

#: Queue and environment of the engine for the containers of all regions.
_QUEUE = "ecs"
_NO_FARGATE_CAPACITY = (
    "Capacity is unavailable at this time. Please try again later or in a different availability "
    "zone"
)


class TaskRequest(NamedTuple):
    """What all tasks of a RunTask, of a StartTask or of a service have in common."""

    cluster: Cluster
    definition: Document
    overrides: Document
    launch_type: str
    #: Empty for tasks that do not wait for capacity.
    capacity_provider: str
    group: str
    started_by: str
    tags: list[Document]
    #: placementConstraints, placementStrategy, networkConfiguration and enableExecuteCommand.
    placement: Document


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a task was not placed."""

    #: ARN of a container instance; empty for a failure of none.
    arn: str
    reason: str

    def describe(self) -> Document:
        return {"arn": self.arn, "reason": self.reason} if self.arn else {"reason": self.reason}


# -- placement ------------------------------------------------------------------------------------


def create_tasks(
    state: EndpointState, request: TaskRequest, count: int
) -> tuple[list[EcsTask], list[Failure]]:
    """Place and begin tasks; return them, and why the others could not be placed."""
    tasks: list[EcsTask] = []
    for _ in range(count):
        task = make_task(state, request)
        if request.capacity_provider and request.launch_type == "EC2":
            # A task of a capacity provider waits for an instance.
            task.refusal = _draw_failure(state, task) or ""
            add(state, task)
        elif request.launch_type == "FARGATE":
            if find_lack(task.spec.need, machine_room(state)) is not None:
                return tasks, [Failure("", _NO_FARGATE_CAPACITY)]
            add(state, task)
            begin(state, task, None)
        else:
            failures = place(state, task)
            if failures is not None:
                return tasks, failures
        tasks.append(task)
    return tasks, []


def place(state: EndpointState, task: EcsTask) -> list[Failure] | None:
    """Begin a task on one of the instances of its cluster, or return why none can take it.

    Returns None for a task that has begun. A cluster without instances has no failures.
    """
    candidates = [
        instance
        for instance in instances.instances_of(state, task.cluster.name)
        if instance.status == "ACTIVE"
    ]
    ordered = _draw_failure(state, task)
    if ordered is not None:
        return [Failure(instance.arn, ordered) for instance in candidates]
    instance, failures = _choose_instance(state, task, candidates)
    if instance is None:
        return failures
    add(state, task)
    begin(state, task, instance)
    return None


def place_waiting(state: EndpointState, task: EcsTask) -> None:
    """Begin a task of a capacity provider if one of the provider's instances has room."""
    provider = find_provider(state, task.capacity_provider)
    candidates = [
        instance
        for instance in instances.instances_of(state, task.cluster.name)
        if instance.status == "ACTIVE" and provider is not None and instance.group == provider.group
    ]
    instance, _ = _choose_instance(state, task, candidates)
    if instance is not None:
        begin(state, task, instance)


def _choose_instance(
    state: EndpointState, task: EcsTask, candidates: list[ContainerInstance]
) -> tuple[ContainerInstance | None, list[Failure]]:
    lack = find_lack(task.spec.need, machine_room(state))
    if lack is not None:
        return None, [Failure(instance.arn, lack) for instance in candidates]
    rooms = [state.ecs.room_of(instance) for instance in candidates]
    room, reasons = choose_room(to_candidate(task), rooms)
    if room is None:
        return None, [Failure(arn, reason) for arn, reason in reasons]
    return next(instance for instance in candidates if instance.arn == room.name), []


def to_candidate(task: EcsTask) -> Candidate:
    """Return a task as placement looks at it."""
    rules = Rules.parse(
        [
            *task.definition.get("placementConstraints", []),
            *task.placement.get("placementConstraints", []),
        ],
        task.placement.get("placementStrategy", []),
    )
    return Candidate(task.spec.need, rules, task.group)


def _draw_failure(state: EndpointState, task: EcsTask) -> str | None:
    """Return the failure that the faults of the endpoint order for a task."""
    if state.faults.draw_for_task(TaskFault.NO_AGENT, task.family):
        return "AGENT"
    if task.spec.need.gpus and state.faults.draw_for_task(TaskFault.NO_GPU, task.family):
        return "RESOURCE:GPU"
    return None


def machine_room(state: EndpointState) -> Room:
    """Return what this machine has in all, on which all tasks really run."""
    machine = state.machine
    return Room("machine", machine.vcpus * 1024, machine.memory_mib, machine.gpus)


def find_provider(state: EndpointState, name: str) -> Provider | None:
    providers = state.ecs.surroundings.list_providers()
    return next((provider for provider in providers if provider.name == name), None)


# -- tasks and the engine -------------------------------------------------------------------------


def make_task(state: EndpointState, request: TaskRequest) -> EcsTask:
    """Return a new task that is not placed yet."""
    spec = make_task_spec(request.definition, request.overrides)
    problem = find_oversized_container(spec)
    if problem is not None:
        raise invalid(problem)
    containers = [
        Container(container, str(uuid.uuid4()), next(state.job_numbers), secrets.token_hex(32))
        for container in spec.containers
    ]
    # The number of the first container leads from the id back to the task's logs.
    task_id = names.task_id(names.AttemptKey(containers[0].number, 0, 1), state.salt)
    return EcsTask(
        task_id=task_id,
        arn=names.task_arn(state.region, request.cluster.name, task_id),
        cluster=request.cluster,
        definition=request.definition,
        spec=spec,
        overrides=request.overrides,
        containers=containers,
        created_s=state.clock(),
        launch_type=request.launch_type,
        group=request.group,
        started_by=request.started_by,
        capacity_provider=request.capacity_provider,
        placement=request.placement,
        tags=request.tags,
    )


def add(state: EndpointState, task: EcsTask) -> None:
    state.ecs.add_task(task)
    network = task.placement.get("networkConfiguration", {}).get("awsvpcConfiguration")
    if network and network.get("subnets"):
        task.interface = state.ecs.surroundings.add_interface(
            network["subnets"][0],
            network.get("securityGroups", []),
            is_public=network.get("assignPublicIp") == "ENABLED",
        )


def begin(state: EndpointState, task: EcsTask, instance: ContainerInstance | None) -> None:
    """Give a task to its instance, and the containers that wait for none to the engine."""
    if instance is not None:
        instance.is_changed = True
        free = state.ecs.free_gpu_ids(instance)
        for container in task.containers:
            count = container.spec.need.gpus
            container.gpu_ids, free = tuple(free[:count]), free[count:]
    task.instance = instance
    task.is_placed = True
    task.placed_s = state.clock()
    begin_containers(state, task)


def begin_containers(state: EndpointState, task: EcsTask) -> None:
    """Submit the containers whose dependencies are met."""
    ready = set(containers_to_begin([container.view() for container in task.containers]))
    for container in task.containers:
        if container.spec.name in ready:
            _submit(state, task, container)


def _submit(state: EndpointState, task: EcsTask, container: Container) -> None:
    _open_queue(state)
    document = make_document(task, container, state.machine.memory_mib)
    job = Job(container.job_id, container.spec.name, _QUEUE, _take_room(task, container))
    counts = tuple(int(status is JobState.PENDING) for status in JobState)
    now_ms = state.now_ms()
    row = JobRow(container.number, job.id, job.id, 1, JobState.PENDING, "", counts, 0, now_ms)
    state.store.commit(new_jobs=[row])
    state.ecs.job_documents[job.id] = document
    state.ecs.job_ids_by_number[container.number] = job.id
    changes = state.scheduler.submit(job)
    state.add_job(job, document, row)
    state.loop.perform(changes)
    container.is_begun = True


def _take_room(task: EcsTask, container: Container) -> Resources:
    """Return what a container takes of this machine: the task's room, unless another holds it."""
    gpus = container.spec.need.gpus
    if any(other.holds_room for other in begun_containers(task.containers)):
        return Resources(0, 0, gpus)
    container.holds_room = True
    return Resources(task.spec.need.cpu_units // 1024, task.spec.need.memory_mib, gpus)


def _open_queue(state: EndpointState) -> None:
    if not state.scheduler.has_queue(_QUEUE):
        state.scheduler.set_environment(ComputeEnvironment(_QUEUE, state.machine))
        state.scheduler.set_queue(Queue(_QUEUE, (_QUEUE,)))


# -- stops ---------------------------------------------------------------------------------------


def find_task(state: EndpointState, cluster: str, name_or_arn: str) -> EcsTask | None:
    task = state.ecs.tasks.get(names.strip_arn(name_or_arn))
    return task if task is not None and task.cluster.name == cluster else None


def request_stop(state: EndpointState, task: EcsTask, stop: Stop) -> None:
    """Send SIGTERM to all containers of a task, and SIGKILL after their stopTimeout."""
    if task.stopping_s is not None:
        return
    task.stopping_s = state.clock()
    task.stop_code, task.stopped_reason = stop
    for container in begun_containers(task.containers):
        state.loop.stop([container.job_id], stop.reason, container.spec.stop_timeout_s)


def lose_host(state: EndpointState, task: EcsTask, stop: Stop) -> None:
    """End a task whose instance was taken away, without exit codes."""
    if task.stopping_s is None:
        task.stopping_s = state.clock()
        task.stop_code, task.stopped_reason = stop
    for container in begun_containers(task.containers):
        if not state.loop.lose(container.job_id, 0, stop.reason):
            state.loop.stop([container.job_id], stop.reason, 0)


def begun_containers(containers: Iterable[Container]) -> list[Container]:
    """Return the containers that the engine has and that are not over."""
    return [container for container in containers if container.is_begun and container.end is None]
