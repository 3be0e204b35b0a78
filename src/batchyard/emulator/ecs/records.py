"""What the endpoint knows about ECS in one region. It is kept in memory, as moto's clusters are.

Code that uses these values holds the lock of the loop.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from batchyard.embedded.runner import Prober
from batchyard.embedded.store import AttemptRow
from batchyard.emulator.ecs.container_specs import ContainerSpec, TaskSpec
from batchyard.emulator.ecs.health_checks import HEALTHY, UNKNOWN, Checkup, combine
from batchyard.emulator.ecs.placement import Room
from batchyard.emulator.ecs.service_decisions import CircuitBreaker
from batchyard.emulator.ecs.surroundings import (
    Cluster,
    NetworkInterface,
    NoSurroundings,
    Surroundings,
)
from batchyard.emulator.ecs.task_states import ContainerView

Document = dict[str, Any]


# -- container instances --------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class ContainerInstance:
    arn: str
    ec2_id: str
    cluster: str
    type_name: str
    zone: str
    is_spot: bool
    cpu_units: int
    memory_mib: int
    gpu_ids: tuple[str, ...]
    registered_s: float
    #: Name of its Auto Scaling group; empty for none.
    group: str = ""
    #: Whether EC2 has the instance, and can end it.
    is_in_ec2: bool = False
    status: str = "ACTIVE"
    is_agent_connected: bool = True
    attributes: dict[str, str] = field(default_factory=dict)
    tags: list[Document] = field(default_factory=list)
    #: When the last task on it ended, in seconds since 1970.
    idle_since_s: float = 0.0
    #: Counts the changes, as in the events of EventBridge.
    version: int = 0
    #: Whether there was a change since the last event.
    is_changed: bool = True
    #: When EC2 takes the instance back, in seconds since 1970; None for an instance that stays.
    reclaimed_at_s: float | None = None

    @property
    def id(self) -> str:
        return self.arn.rpartition("/")[2]


# -- tasks ----------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Container:
    """A container of a task: one job of the engine, with one child and one attempt."""

    spec: ContainerSpec
    job_id: str
    #: Number of the job in the store.
    number: int
    runtime_id: str
    gpu_ids: tuple[str, ...] = ()
    is_begun: bool = False
    #: Whether its job of the engine holds the vCPUs and the memory of the whole task.
    holds_room: bool = False
    started_ms: int | None = None
    #: The row of the attempt, when it has ended.
    end: AttemptRow | None = None
    #: None for a container without a health check.
    checkup: Checkup | None = None

    def __post_init__(self) -> None:
        if self.spec.health_check is not None:
            self.checkup = Checkup(self.spec.health_check)

    @property
    def health(self) -> str:
        return UNKNOWN if self.checkup is None else self.checkup.health.status

    def view(self) -> ContainerView:
        return ContainerView(
            self.spec.name,
            self.spec.is_essential,
            self.spec.depends_on,
            self.is_begun,
            self.started_ms is not None,
            self.end is not None,
            None if self.end is None else self.end.exit_code,
            self.health,
        )


@dataclass(slots=True, eq=False)
class EcsTask:
    task_id: str
    arn: str
    cluster: Cluster
    definition: Document
    spec: TaskSpec
    overrides: Document
    containers: list[Container]
    created_s: float
    launch_type: str
    group: str
    started_by: str = ""
    capacity_provider: str = ""
    #: Placement constraints and strategy of the request, its network and enableExecuteCommand.
    placement: Document = field(default_factory=dict)
    tags: list[Document] = field(default_factory=list)
    instance: ContainerInstance | None = None
    interface: NetworkInterface | None = None
    is_placed: bool = False
    #: Why the task can never be placed, which the faults of the endpoint order; empty if it can.
    refusal: str = ""
    #: Seconds since 1970, all of them.
    placed_s: float = 0.0
    started_s: float | None = None
    stopping_s: float | None = None
    stopped_s: float | None = None
    stop_code: str = ""
    stopped_reason: str = ""
    #: Counts the changes, as in the events of EventBridge.
    version: int = 1
    #: lastStatus of the last event.
    seen_status: str = ""

    @property
    def family(self) -> str:
        return str(self.definition["family"])

    @property
    def is_stopped(self) -> bool:
        return self.stopped_s is not None

    @property
    def _health_of_containers(self) -> list[str]:
        return [
            container.health
            for container in self.containers
            if container.spec.is_essential and container.checkup is not None
        ]

    @property
    def health(self) -> str:
        """HEALTHY, UNHEALTHY or UNKNOWN, by the essential containers that have a check."""
        return combine(self._health_of_containers)

    @property
    def is_up(self) -> bool:
        """Whether the task has started, and has passed its health checks if it has any."""
        is_healthy = not self._health_of_containers or self.health == HEALTHY
        return self.started_s is not None and is_healthy


# -- services -------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Deployment:
    id: str
    definition: Document
    created_s: float
    updated_s: float
    #: PRIMARY for the newest one, else ACTIVE.
    status: str = "PRIMARY"
    rollout_state: str = "IN_PROGRESS"
    rollout_reason: str = ""
    failed_tasks: int = 0
    failures_in_a_row: int = 0
    #: No task starts before this time.
    next_start_s: float = 0.0
    steady_since_s: float | None = None
    is_steady: bool = False
    #: Whether the circuit breaker has ended the deployment.
    has_given_up: bool = False


@dataclass(slots=True, eq=False)
class Service:
    name: str
    arn: str
    cluster: Cluster
    #: The members of CreateService, and of UpdateService after it.
    request: Document
    desired: int
    created_s: float
    tags: list[Document] = field(default_factory=list)
    status: str = "ACTIVE"
    #: The newest one first.
    deployments: list[Deployment] = field(default_factory=list)
    #: Ids of all deployments, also of those that are over.
    deployment_ids: set[str] = field(default_factory=set)
    last_completed: Deployment | None = None
    #: Newest first.
    events: list[Document] = field(default_factory=list)
    #: Ids of ended tasks that were looked at, and of tasks that have become healthy.
    counted_tasks: set[str] = field(default_factory=set)
    healthy_tasks: set[str] = field(default_factory=set)

    @property
    def primary(self) -> Deployment:
        return self.deployments[0]

    @property
    def primary_or_none(self) -> Deployment | None:
        return self.deployments[0] if self.deployments else None

    @property
    def configuration(self) -> Document:
        configuration: Document = self.request.get("deploymentConfiguration", {})
        return configuration

    @property
    def minimum_percent(self) -> int:
        is_daemon = self.request.get("schedulingStrategy") == "DAEMON"
        return int(self.configuration.get("minimumHealthyPercent", 0 if is_daemon else 100))

    @property
    def maximum_percent(self) -> int:
        is_daemon = self.request.get("schedulingStrategy") == "DAEMON"
        return int(self.configuration.get("maximumPercent", 100 if is_daemon else 200))

    @property
    def breaker(self) -> CircuitBreaker:
        return CircuitBreaker.parse(self.configuration.get("deploymentCircuitBreaker", {}))


class EcsEvent(NamedTuple):
    """An event of EventBridge about a service or a container instance."""

    #: detail-type
    kind: str
    arn: str
    detail: Document


@dataclass(slots=True)
class EcsState:
    surroundings: Surroundings = field(default_factory=NoSurroundings)
    #: Runs health checks beside containers; None: they are not run.
    prober: Prober | None = None
    #: Family -> its revisions, the first one first.
    definitions: dict[str, list[Document]] = field(default_factory=dict)
    tasks: dict[str, EcsTask] = field(default_factory=dict)
    #: The tasks that are not STOPPED, and those whose end has no event yet.
    live: dict[str, EcsTask] = field(default_factory=dict)
    unreported: dict[str, EcsTask] = field(default_factory=dict)
    #: The tasks that are STOPPED, in the order of their ends.
    stopped: deque[EcsTask] = field(default_factory=deque)
    #: By cluster and name.
    services: dict[tuple[str, str], Service] = field(default_factory=dict)
    #: Events about services and ended instances that were not sent yet.
    events_to_send: list[EcsEvent] = field(default_factory=list)
    #: By the id of the EC2 instance.
    instances: dict[str, ContainerInstance] = field(default_factory=dict)
    #: Id of each EC2 instance whose container instance is INACTIVE -> the id of that one.
    removed_instances: dict[str, str] = field(default_factory=dict)
    #: (cluster, clientToken) -> the request, and the ids of its tasks.
    client_tokens: dict[tuple[str, str], tuple[Document, list[str]]] = field(default_factory=dict)
    #: Job id -> the container as a job's document; kept for the logs.
    job_documents: dict[str, Document] = field(default_factory=dict)
    job_ids_by_number: dict[int, str] = field(default_factory=dict)

    def add_task(self, task: EcsTask) -> None:
        for tasks in (self.tasks, self.live, self.unreported):
            tasks[task.task_id] = task

    def live_tasks(self) -> list[EcsTask]:
        return list(self.live.values())

    def tasks_on(self, instance: ContainerInstance) -> list[EcsTask]:
        return [task for task in self.live_tasks() if task.instance is instance]

    def room_of(self, instance: ContainerInstance) -> Room:
        """Return what is free on an instance."""
        tasks = self.tasks_on(instance)
        return Room(
            instance.arn,
            instance.cpu_units - sum(task.spec.need.cpu_units for task in tasks),
            instance.memory_mib - sum(task.spec.need.memory_mib for task in tasks),
            len(instance.gpu_ids) - sum(task.spec.need.gpus for task in tasks),
            frozenset(port for task in tasks for port in task.spec.need.ports),
            len(tasks),
            frozenset(task.group for task in tasks),
            instance.attributes,
            instance.is_agent_connected,
        )

    def free_gpu_ids(self, instance: ContainerInstance) -> list[str]:
        used = {
            gpu
            for task in self.tasks_on(instance)
            for container in task.containers
            for gpu in container.gpu_ids
        }
        return [gpu for gpu in instance.gpu_ids if gpu not in used]
