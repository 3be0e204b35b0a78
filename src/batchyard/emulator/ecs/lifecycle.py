"""The progress of ECS: what the engine reports becomes states of tasks, and capacity follows.

``advance`` is called ten times a second and before each operation of ECS.
"""

from __future__ import annotations

from collections.abc import Iterable

from batchyard.batch.jobs import JobState
from batchyard.embedded.store import AttemptRow
from batchyard.emulator.ecs import capacity, instances, services
from batchyard.emulator.ecs.container_specs import invalid
from batchyard.emulator.ecs.records import Container, ContainerInstance, EcsTask
from batchyard.emulator.ecs.service_requests import make_service_request
from batchyard.emulator.ecs.task_states import Stop, find_stop
from batchyard.emulator.ecs.tasks import begin_containers, begun_containers, lose_host, request_stop
from batchyard.emulator.state import Document, EndpointState

#: ECS shows stopped tasks for about an hour.
_KEPT_S = 3600


def advance(state: EndpointState) -> None:
    """Bring all tasks, instances and services of a region to where they are now."""
    booting = instances.join_new_instances(state)
    end_instances(state, instances.find_ended_instances(state))
    _end_reclaimed(state)
    for task in state.ecs.live_tasks():
        advance_task(state, task)
    services.advance(state, make_service_request)
    capacity.advance(state, booting)
    _forget_old_tasks(state)


# -- tasks ----------------------------------------------------------------------------------------


def advance_task(state: EndpointState, task: EcsTask) -> None:
    for container in begun_containers(task.containers):
        _observe(state, container)
    views = [container.view() for container in task.containers]
    if task.started_s is None and all(view.is_started for view in views):
        task.started_s = max(c.started_ms or 0 for c in task.containers) / 1000
    if task.stopping_s is None and task.is_placed:
        _continue_or_stop(state, task, find_stop(views))
    if task.stopping_s is not None and not begun_containers(task.containers):
        _finish(state, task)


def _continue_or_stop(state: EndpointState, task: EcsTask, stop: Stop | None) -> None:
    if stop is None:
        begin_containers(state, task)
    else:
        request_stop(state, task, stop)


def _observe(state: EndpointState, container: Container) -> None:
    """Take the start or the end of a container from the engine."""
    running = state.loop.find_running_task(container.job_id, 0)
    if running is not None:
        container.started_ms = running.started_ms
        if container.checkup is not None and state.ecs.prober is not None:
            container.checkup.advance(state.ecs.prober, running, state.clock())
        return
    if not state.scheduler.child_state(container.job_id, 0).is_terminal:
        return
    if container.checkup is not None:
        container.checkup.end()
    # This writes the output too, so that a stopped task has its whole log.
    rows = list(state.read_attempts(container.job_id))
    container.end = rows[-1] if rows else _never_placed(state, container)
    container.started_ms = container.end.started_ms


def _never_placed(state: EndpointState, container: Container) -> AttemptRow:
    """Return the end of a container that was stopped while it waited for room on this machine."""
    failed = JobState.FAILED.value
    return AttemptRow(container.number, 0, 0, failed, None, "", "", None, state.now_ms())


def _finish(state: EndpointState, task: EcsTask) -> None:
    task.stopped_s = state.clock()
    del state.ecs.live[task.task_id]
    state.ecs.stopped.append(task)
    if task.instance is not None:
        task.instance.idle_since_s = task.stopped_s
        task.instance.is_changed = True
    if task.interface is not None:
        state.ecs.surroundings.remove_interface(task.interface.interface_id)


def _forget_old_tasks(state: EndpointState) -> None:
    oldest_s = state.clock() - _KEPT_S
    stopped = state.ecs.stopped
    while stopped and (stopped[0].stopped_s or 0) < oldest_s:
        del state.ecs.tasks[stopped.popleft().task_id]


# -- instances ------------------------------------------------------------------------------------


def end_instances(state: EndpointState, ended: Iterable[ContainerInstance]) -> None:
    """Forget instances that have ended; their tasks end with them."""
    for instance in ended:
        instance.version += 1
        event = instances.make_instance_event(
            state, instance, status="INACTIVE", agentConnected=False
        )
        state.ecs.events_to_send.append(event)
        del state.ecs.instances[instance.ec2_id]
        state.ecs.removed_instances[instance.ec2_id] = instance.id
        reason = f"Host EC2 (instance {instance.ec2_id}) terminated."
        for task in state.ecs.tasks_on(instance):
            lose_host(state, task, Stop("TerminationNotice", reason))


def deregister_instance(state: EndpointState, request: Document) -> Document:
    """DeregisterContainerInstance; with `force`, its tasks end."""
    instance = instances.require(state, request)
    if state.ecs.tasks_on(instance) and not request.get("force"):
        raise invalid("Found running tasks on the instance.")
    description = instances.describe_instance(state, instance)
    end_instances(state, [instance])
    return {"containerInstance": {**description, "status": "INACTIVE", "agentConnected": False}}


def _end_reclaimed(state: EndpointState) -> None:
    """End the instances that EC2 takes back now."""
    due = [
        instance
        for instance in state.ecs.instances.values()
        if instance.reclaimed_at_s is not None and instance.reclaimed_at_s <= state.clock()
    ]
    for instance in due:
        if instance.is_in_ec2:
            state.ecs.surroundings.end_instance(instance.ec2_id, is_replaced=True)
    end_instances(state, due)
