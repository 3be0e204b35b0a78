"""Reclaims of the instances of ECS tasks: a notice, then the end, as EC2 Spot does."""

from __future__ import annotations

from batchyard.emulator import names
from batchyard.emulator.api_errors import InvalidRequestError
from batchyard.emulator.ecs.records import ContainerInstance, EcsTask
from batchyard.emulator.ecs.task_states import Stop
from batchyard.emulator.ecs.tasks import request_stop
from batchyard.emulator.state import Document, EndpointState

#: What Fargate Spot shows.
_FARGATE_SPOT = Stop("SpotInterruption", "Your Spot Task was interrupted.")


def find_task(state: EndpointState, name_or_arn: str) -> EcsTask | None:
    return state.ecs.tasks.get(names.strip_arn(name_or_arn))


def announce(state: EndpointState, task: EcsTask, notice_s: float) -> Document:
    """Reclaim the instance of a task after ``notice_s``. Raises InvalidRequestError.

    A task without an instance, on Fargate, gets SIGTERM at once, as on Fargate Spot.
    """
    if task.is_stopped or not task.is_placed:
        raise InvalidRequestError(f"{task.arn} is not running, so it has no host to reclaim")
    if task.instance is None:
        request_stop(state, task, _FARGATE_SPOT)
        return {"jobId": task.arn, "instanceId": "", "notice": notice_s}
    announce_for_instance(state, task.instance, notice_s)
    return {"jobId": task.arn, "instanceId": task.instance.ec2_id, "notice": notice_s}


def announce_for_instance(
    state: EndpointState, instance: ContainerInstance, notice_s: float
) -> None:
    """Reclaim an instance. The agent drains it, as with ECS_ENABLE_SPOT_INSTANCE_DRAINING."""
    instance.reclaimed_at_s = state.clock() + notice_s
    instance.status = "DRAINING"
    instance.is_changed = True
