"""How a stopped task of ECS ended, in the terms of AWS Batch, which retry rules are about. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from batchyard.batch.jobs import Outcome, StatusReason
from batchyard.engines.ecs.requests import CONTAINER

#: Why a task has not started that may start later: the cluster has no room for it now.
_LACKS = re.compile(
    r"RESOURCE:|AGENT|NO ACTIVE INSTANCES|EMPTY CAPACITY PROVIDER|Capacity is unav"
    # Of Fargate: "You've reached the limit on the number of vCPUs you can run concurrently".
    r"|reached the limit on the number of"
)
_RECLAIMS = ("SpotInterruption", "TerminationNotice")
_HOST_LOST = "Host EC2"


def is_lack(reason: str) -> bool:
    """Return whether ECS refuses a task only because the cluster has no room for it now."""
    return _LACKS.search(reason) is not None


def was_refused(task: Mapping[str, Any]) -> bool:
    """Return whether a stopped task never started because its cluster had no room for it."""
    has_begun = bool(task.get("startedAt")) or _exit_code(task) is not None
    return not has_begun and is_lack(str(task.get("stoppedReason", "")))


def read_outcome(task: Mapping[str, Any]) -> Outcome:
    """Return the outcome of a stopped task. Only the exit code 0 of its container is a success."""
    stop_code = str(task.get("stopCode", ""))
    stopped_reason = str(task.get("stoppedReason", "")) or StatusReason.NOT_STARTED
    reason = _container_reason(task)
    exit_code = _exit_code(task)
    if stop_code in _RECLAIMS and not stopped_reason.startswith(_HOST_LOST):
        return Outcome(None, f"{_HOST_LOST} terminated: {stopped_reason}", reason)
    if stop_code in ("EssentialContainerExited", "") and exit_code is not None:
        return Outcome(exit_code, StatusReason.EXITED, reason)
    if stop_code == "TaskFailedToStart" and reason:
        return Outcome(None, StatusReason.NOT_STARTED, reason)
    # Somebody has stopped the task: its exit code 0 does not mean that its work is done.
    return Outcome(exit_code or None, stopped_reason, reason)


def make_lost_outcome(task_arn: str = "") -> Outcome:
    """Return the outcome of a task that ECS does not know any more, if there ever was one."""
    task_id = task_arn.rpartition("/")[2]
    name = f"task {task_id}" if task_id else "a task that it may have started"
    return Outcome(None, f"{_HOST_LOST} unknown: ECS has forgotten how {name} ended")


def _container(task: Mapping[str, Any]) -> Mapping[str, Any]:
    containers: list[Mapping[str, Any]] = task.get("containers", [])
    return next((entry for entry in containers if entry.get("name") == CONTAINER), {})


def _exit_code(task: Mapping[str, Any]) -> int | None:
    return _container(task).get("exitCode")


def _container_reason(task: Mapping[str, Any]) -> str:
    reason = str(_container(task).get("reason", ""))
    if reason.startswith("CannotPull"):
        # There are several names for it: CannotPullECRContainerError, CannotPullImageManifestError.
        return f"CannotPullContainerError: {reason.partition(':')[2].strip()}"
    return reason
