"""The service scheduler: it keeps the desired count of each service, and deploys new revisions."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable

from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.ecs.health_checks import UNHEALTHY
from batchyard.emulator.ecs.records import Deployment, EcsTask, Service
from batchyard.emulator.ecs.service_decisions import (
    Counts,
    backoff_s,
    is_complete,
    plan,
)
from batchyard.emulator.ecs.service_events import report_action, report_deployment
from batchyard.emulator.ecs.task_states import Stop
from batchyard.emulator.ecs.tasks import Failure, TaskRequest, create_tasks, request_stop
from batchyard.emulator.state import Document, EndpointState

#: A task is healthy, and a deployment is complete, when its tasks have run so long, so that a crash
#: counts as a failure.
_STEADY_S = 1.0
#: Time between two attempts to place a task for which there was no room.
_PLACEMENT_PAUSE_S = 1.0
_MAX_EVENTS = 100
_UNHEALTHY_REASON = "Task failed container health checks"
#: Stop codes of tasks that ended by themselves.
_OWN_ENDS = ("EssentialContainerExited", "TaskFailedToStart")
_TROUBLESHOOTING = (
    "For more information, see the Troubleshooting section of the Amazon ECS Developer Guide."
)
#: Reason of a failure of RunTask -> the end of the event about it.
_LACKS = {
    "RESOURCE:CPU": "has insufficient CPU units available.",
    "RESOURCE:MEMORY": "has insufficient memory available.",
    "RESOURCE:PORTS": "is already using a port required by your task.",
    "RESOURCE:GPU": "has insufficient GPU resource available.",
}

#: Returns the request for the tasks of a deployment.
MakeRequest = Callable[[EndpointState, Service, Deployment], TaskRequest]


def advance(state: EndpointState, make_request: MakeRequest) -> None:
    for service in list(state.ecs.services.values()):
        if service.status != "INACTIVE":
            _advance_service(state, service, make_request)


def _advance_service(state: EndpointState, service: Service, make_request: MakeRequest) -> None:
    tasks = tasks_of(state, service)
    primary = service.primary
    _stop_unhealthy(state, service, tasks)
    _count_failures(state, service, tasks)
    if service.status == "DRAINING":
        _stop_all(state, service, tasks)
        return
    new, old = _split(tasks, primary)
    step = plan(
        desired_count(state, service),
        service.minimum_percent,
        service.maximum_percent,
        _count(new),
        _count(old),
    )
    _stop(state, service, _least_useful_first(new)[: step.stop_new])
    _stop(state, service, _least_useful_first(old)[: step.stop_old])
    if step.start and state.clock() >= primary.next_start_s and not primary.has_given_up:
        _start(state, service, step.start, make_request)
    _finish_deployments(state, service, tasks)


def tasks_of(state: EndpointState, service: Service) -> list[EcsTask]:
    """Return the tasks of a service, stopped ones too."""
    group = f"service:{service.name}"
    return [
        task
        for task in state.ecs.tasks.values()
        if task.group == group and task.started_by in service.deployment_ids
    ]


def count_tasks(tasks: list[EcsTask], deployment_id: str = "") -> Counts:
    """Return the tasks that are not stopping, of one deployment or of all."""
    present = [
        task for task in tasks if task.stopping_s is None and deployment_id in ("", task.started_by)
    ]
    running = sum(task.started_s is not None for task in present)
    return Counts(len(present) - running, running)


def _split(tasks: list[EcsTask], primary: Deployment) -> tuple[list[EcsTask], list[EcsTask]]:
    """Return the tasks that are to stay, and those that are to be replaced."""
    new: list[EcsTask] = []
    old: list[EcsTask] = []
    for task in tasks:
        if task.stopping_s is not None or task.is_stopped:
            continue
        is_drained = task.instance is not None and task.instance.status == "DRAINING"
        (old if is_drained or task.started_by != primary.id else new).append(task)
    return new, old


def _count(tasks: list[EcsTask]) -> Counts:
    """Return the tasks, of which those count as running that have passed their health checks."""
    running = sum(task.is_up for task in tasks)
    return Counts(len(tasks) - running, running)


def desired_count(state: EndpointState, service: Service) -> int:
    """Return the desired count; a DAEMON service has a task on each instance."""
    is_daemon = service.request.get("schedulingStrategy") == "DAEMON"
    if not is_daemon or service.status != "ACTIVE":
        return service.desired
    return sum(
        instance.cluster == service.cluster.name and instance.status == "ACTIVE"
        for instance in state.ecs.instances.values()
    )


def _least_useful_first(tasks: list[EcsTask]) -> list[EcsTask]:
    return sorted(tasks, key=lambda task: (task.started_s is not None, -task.created_s))


# -- starts and stops -----------------------------------------------------------------------------


def _start(state: EndpointState, service: Service, count: int, make_request: MakeRequest) -> None:
    primary = service.primary
    try:
        tasks, failures = create_tasks(state, make_request(state, service, primary), count)
    except ApiError as exc:
        # What the service needs was deleted since: its capacity provider, for example.
        primary.next_start_s = state.clock() + _PLACEMENT_PAUSE_S
        _report_once(state, service, f"was unable to place a task. Reason: {exc.message}")
        return
    if tasks:
        ids = " ".join(f"(task {task.task_id})" for task in tasks)
        add_event(state, service, f"has started {len(tasks)} tasks: {ids}.")
    if len(tasks) < count:
        primary.next_start_s = state.clock() + _PLACEMENT_PAUSE_S
        _report_no_room(state, service, failures)


def _report_no_room(state: EndpointState, service: Service, failures: list[Failure]) -> None:
    text = f"{_describe_lack(failures)} {_TROUBLESHOOTING}"
    if _report_once(state, service, text):
        reason = failures[0].reason if failures else "No Container Instances were found"
        report_action(state, service, "SERVICE_TASK_PLACEMENT_FAILURE", reason)


def _describe_lack(failures: list[Failure]) -> str:
    """Return the event about tasks that were not placed, without the name of the service."""
    if failures and not failures[0].arn:
        return f"was unable to place a task. Reason: {failures[0].reason}."
    text = "was unable to place a task because no container instance met all of its requirements. "
    if failures:
        closest = failures[0]
        lack = _LACKS.get(closest.reason, f'encountered error "{closest.reason}".')
        instance = closest.arn.rpartition("/")[2]
        return text + f"The closest matching (container-instance {instance}) {lack}"
    return text + "Reason: No Container Instances were found in your cluster."


def _report_once(state: EndpointState, service: Service, text: str) -> bool:
    """Add an event that is not the same as one of the last ones; return whether it was added."""
    is_new = not any(text in event["message"] for event in service.events[:3])
    if is_new:
        add_event(state, service, text)
    return is_new


def _stop(state: EndpointState, service: Service, tasks: list[EcsTask]) -> None:
    for task in tasks:
        reason = f"Scaling activity initiated by (deployment {service.primary.id})"
        request_stop(state, task, Stop("ServiceSchedulerInitiated", reason))
    if tasks:
        ids = " ".join(f"(task {task.task_id})" for task in tasks)
        add_event(state, service, f"has stopped {len(tasks)} running tasks: {ids}.")


def _stop_unhealthy(state: EndpointState, service: Service, tasks: list[EcsTask]) -> None:
    """Stop the tasks whose health checks fail; others take their places."""
    for task in tasks:
        if task.health == UNHEALTHY and task.stopping_s is None:
            request_stop(state, task, Stop("ServiceSchedulerInitiated", _UNHEALTHY_REASON))
            add_event(state, service, f"(task {task.task_id}) failed container health checks.")


def _stop_all(state: EndpointState, service: Service, tasks: list[EcsTask]) -> None:
    _stop(state, service, [task for task in tasks if task.stopping_s is None])
    if all(task.is_stopped for task in tasks):
        service.status = "INACTIVE"
        service.deployments.clear()


# -- deployments ----------------------------------------------------------------------------------


def begin_deployment(state: EndpointState, service: Service, definition: Document) -> Deployment:
    """Make a revision the newest deployment of a service."""
    for earlier in service.deployments:
        earlier.status = "ACTIVE"
    deployment = Deployment(
        id=f"ecs-svc/{secrets.randbelow(9 * 10**18) + 10**18}",
        definition=definition,
        created_s=state.clock(),
        updated_s=state.clock(),
    )
    deployment.rollout_reason = f"ECS deployment {deployment.id} in progress."
    service.deployments.insert(0, deployment)
    service.deployment_ids.add(deployment.id)
    report_deployment(state, service, deployment)
    return deployment


def _count_failures(state: EndpointState, service: Service, tasks: list[EcsTask]) -> None:
    """Count the tasks of the newest deployment that ended by themselves."""
    primary = service.primary_or_none
    for task in tasks:
        if not _has_failed(task) or task.task_id in service.counted_tasks:
            continue
        service.counted_tasks.add(task.task_id)
        if primary is not None and task.started_by == primary.id:
            _count_failure(state, service, primary)
    if primary is not None and primary.rollout_state == "IN_PROGRESS":
        _reset_circuit(state, service, primary, tasks)
        _break_circuit(state, service, primary)


def _has_failed(task: EcsTask) -> bool:
    is_failure = task.stop_code in _OWN_ENDS or task.stopped_reason == _UNHEALTHY_REASON
    return task.is_stopped and is_failure


def _count_failure(state: EndpointState, service: Service, primary: Deployment) -> None:
    """Count a failed task of the deployment; after several, the next one starts later."""
    primary.failures_in_a_row += 1
    if primary.rollout_state == "IN_PROGRESS":
        primary.failed_tasks += 1
    delay_s = backoff_s(primary.failures_in_a_row)
    if delay_s:
        primary.next_start_s = state.clock() + delay_s
        text = f"is unable to consistently start tasks successfully. {_TROUBLESHOOTING}"
        if _report_once(state, service, text):
            report_action(state, service, "SERVICE_TASK_START_IMPAIRED")


def _reset_circuit(
    state: EndpointState, service: Service, primary: Deployment, tasks: list[EcsTask]
) -> None:
    """Set the count of failures back to 0 if a task of the deployment has become healthy."""
    healthy_before_s = state.clock() - _STEADY_S
    for task in tasks:
        is_healthy = task.is_up and (task.started_s or 0) <= healthy_before_s
        is_own = task.stopping_s is None and task.started_by == primary.id
        if is_healthy and is_own and task.task_id not in service.healthy_tasks:
            service.healthy_tasks.add(task.task_id)
            if service.breaker.is_reset_by_healthy_tasks:
                primary.failed_tasks = 0


def _break_circuit(state: EndpointState, service: Service, primary: Deployment) -> None:
    breaker = service.breaker
    threshold = breaker.threshold(desired_count(state, service))
    if not breaker.is_enabled or primary.failed_tasks < threshold:
        return
    primary.rollout_state = "FAILED"
    primary.rollout_reason = "ECS deployment circuit breaker: tasks failed to start."
    primary.updated_s = state.clock()
    primary.has_given_up = True
    report_deployment(state, service, primary)
    add_event(
        state, service, f"(deployment {primary.id}) deployment failed: tasks failed to start."
    )
    target = service.last_completed
    if not breaker.is_rolled_back or target is None:
        return
    add_event(state, service, f"rolling back to deployment {target.id}.")
    deployment = begin_deployment(state, service, target.definition)
    deployment.rollout_reason = (
        f"ECS deployment circuit breaker: rolling back to deploymentId {target.id}."
    )


def _finish_deployments(state: EndpointState, service: Service, tasks: list[EcsTask]) -> None:
    primary = service.primary
    new, old = _split(tasks, primary)
    desired = desired_count(state, service)
    if not is_complete(desired, _count(new), _count(old)):
        primary.steady_since_s, primary.is_steady = None, False
        return
    now_s = state.clock()
    if primary.steady_since_s is None:
        primary.steady_since_s = now_s
    if desired and now_s - primary.steady_since_s < _STEADY_S:
        return
    primary.failures_in_a_row = 0
    if all(task.is_stopped for task in tasks if task.started_by != primary.id):
        service.deployments = [primary]
    if primary.rollout_state == "IN_PROGRESS":
        primary.rollout_state = "COMPLETED"
        primary.rollout_reason = f"ECS deployment {primary.id} completed."
        primary.updated_s = now_s
        service.last_completed = primary
        report_deployment(state, service, primary)
        add_event(state, service, f"(deployment {primary.id}) deployment completed.")
    if not primary.is_steady:
        primary.is_steady = True
        add_event(state, service, "has reached a steady state.")
        report_action(state, service, "SERVICE_STEADY_STATE")


def add_event(state: EndpointState, service: Service, text: str) -> None:
    event = {
        "id": str(uuid.uuid4()),
        "createdAt": state.clock(),
        "message": f"(service {service.name}) {text}",
    }
    service.events = [event, *service.events][:_MAX_EVENTS]
