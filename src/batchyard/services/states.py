"""Services, tasks and their events as values, from the shapes of ECS. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

#: Endings of tasks that the service scheduler or the user wanted.
_WANTED_STOPS = ("ServiceSchedulerInitiated", "UserInitiated")
_SERVICE = re.compile(r"^\(service [^)]*\) ")
_TASK = re.compile(r"\(task ([0-9a-f]{8})[0-9a-f]*\)")
#: Parts of events that say nothing: long numbers, and where to read more.
_NOISE = re.compile(r"^\(deployment \S+\) | For more information, see the .*$")


@dataclass(frozen=True, slots=True)
class PortBinding:
    container_port: int
    #: Port of the node; the same as ``container_port`` for a task with an address of its own.
    host_port: int


@dataclass(frozen=True, slots=True)
class TaskState:
    id: str
    #: As ECS names it: PROVISIONING, PENDING, RUNNING ... STOPPED.
    status: str
    #: HEALTHY, UNHEALTHY, or UNKNOWN without a health check.
    health: str
    #: Seconds since 1970; None before the start.
    started_s: float | None
    #: EC2 instance; empty before the task is placed.
    node: str
    #: Own address of a task with network awsvpc; empty for others.
    address: str
    ports: tuple[PortBinding, ...]
    #: Revision of the task definition.
    revision: int


@dataclass(frozen=True, slots=True)
class ServiceEvent:
    id: str
    time_s: float
    text: str


@dataclass(frozen=True, slots=True)
class ServiceState:
    name: str
    environment: str
    cluster: str
    #: ACTIVE or DRAINING.
    status: str
    desired: int
    running: int
    pending: int
    #: IN_PROGRESS, COMPLETED or FAILED, of the newest deployment.
    rollout: str
    tasks: tuple[TaskState, ...]
    #: Newest first.
    events: tuple[ServiceEvent, ...]
    #: Why the last tasks ended that nobody had asked to end, newest first.
    failures: tuple[str, ...]

    @property
    def is_steady(self) -> bool:
        return self.running == self.desired and self.rollout == "COMPLETED"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "is_steady": self.is_steady}


def to_service_state(
    service: Mapping[str, Any],
    environment: str,
    tasks: Iterable[Mapping[str, Any]],
    stopped_tasks: Iterable[Mapping[str, Any]],
    nodes: Mapping[str, str],
) -> ServiceState:
    """Return the state of a service; ``nodes``: container instance -> EC2 instance."""
    newest_first = sorted(stopped_tasks, key=_stop_time, reverse=True)
    return ServiceState(
        name=service["serviceName"],
        environment=environment,
        cluster=service["clusterArn"].rpartition("/")[2],
        status=service["status"],
        desired=service["desiredCount"],
        running=service["runningCount"],
        pending=service["pendingCount"],
        rollout=next((d.get("rolloutState", "") for d in service["deployments"]), ""),
        tasks=tuple(to_task_state(task, nodes) for task in tasks),
        events=tuple(to_events(service["events"])),
        failures=tuple(filter(None, map(describe_failure, newest_first))),
    )


def _stop_time(task: Mapping[str, Any]) -> float:
    stopped_at = task.get("stoppedAt")
    return float(stopped_at.timestamp()) if stopped_at else 0.0


def to_task_state(task: Mapping[str, Any], nodes: Mapping[str, str]) -> TaskState:
    started_at = task.get("startedAt")
    containers = task.get("containers", [])
    interfaces = [entry for c in containers for entry in c.get("networkInterfaces", [])]
    bindings = [entry for c in containers for entry in c.get("networkBindings", [])]
    return TaskState(
        id=task["taskArn"].rpartition("/")[2],
        status=task["lastStatus"],
        health=task.get("healthStatus", "UNKNOWN"),
        started_s=started_at.timestamp() if started_at else None,
        node=nodes.get(task.get("containerInstanceArn", ""), ""),
        address=next((entry.get("privateIpv4Address", "") for entry in interfaces), ""),
        # The same port has an entry each for IPv4 and IPv6.
        ports=tuple(
            dict.fromkeys(PortBinding(b["containerPort"], b["hostPort"]) for b in bindings)
        ),
        revision=revision_of(task),
    )


def revision_of(task: Mapping[str, Any]) -> int:
    """Return the revision of the task definition that a task was started from."""
    return int(task["taskDefinitionArn"].rpartition(":")[2])


def to_events(events: Iterable[Mapping[str, Any]]) -> list[ServiceEvent]:
    """Return the events of a service without its name, and with short ids of tasks."""
    return [
        ServiceEvent(
            event["id"],
            event["createdAt"].timestamp(),
            _TASK.sub(r"\1", _NOISE.sub("", _SERVICE.sub("", event["message"]))),
        )
        for event in events
    ]


def describe_failure(task: Mapping[str, Any]) -> str:
    """Return why a stopped task ended; empty if somebody wanted it, or if it has not ended."""
    stopped_reason = str(task.get("stoppedReason", "ECS gave no reason"))
    if task["lastStatus"] != "STOPPED":
        return ""
    if "health checks" in stopped_reason:
        # The service scheduler has stopped the task, and its exit code is that of the stop.
        return stopped_reason
    if task.get("stopCode") in _WANTED_STOPS:
        return ""
    for container in task.get("containers", []):
        reason, code = container.get("reason", ""), container.get("exitCode")
        if code is not None:
            return f"exit code {code} ({reason or stopped_reason})"
        if reason:
            return f"it did not start: {reason}"
    return stopped_reason


#: pattern of a failure -> what to do
_HINTS = (
    (
        r"CannotPull|pull access denied|manifest",
        "check `image:`; `batchyard image push` puts an image of yours into the environment",
    ),
    (r"OutOfMemory", "raise `memory:` of the service"),
    (r"RESOURCE:GPU|GPU resource", "lower `gpus:`, or take larger InstanceTypes for the cluster"),
    (
        r"RESOURCE:(CPU|MEMORY)|insufficient (memory|CPU)",
        "lower `cpus:` or `memory:`, or take larger InstanceTypes for the cluster",
    ),
    (
        r"ResourceInitializationError|AccessDenied",
        "secrets must be named after the environment, like ENV/NAME; EFS must let the nodes in",
    ),
    (
        r"No Container Instances|NO ACTIVE INSTANCES|EMPTY CAPACITY",
        "the cluster has no node: a Spot Fleet has as many as its parameter Nodes says, as in"
        " `batchyard deploy spotfleet --set Nodes=1`",
    ),
    (
        r"unable to place",
        "the task waits for room: scale or stop others, or take larger or more nodes",
    ),
    (r"health check", "the command of `health:` fails in the container: check it, or add `start:`"),
    (r"exit code", "the output of the task says more: correct the image or the command, then `up`"),
)


def find_hint(failure: str) -> str:
    """Return what to do about a failure; empty if nothing is known."""
    hints = (hint for pattern, hint in _HINTS if re.search(pattern, failure, re.IGNORECASE))
    return next(hints, "")
