"""The emulated EC2 instances, as EC2, ECS and the metadata service show them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from batchyard.batch.fleets import Host
from batchyard.batch.jobs import Resources
from batchyard.emulator import names
from batchyard.emulator.state import ENVIRONMENT, Document, EndpointState


class Instance(NamedTuple):
    instance_id: str
    type_name: str
    environment: Document
    subnet: str
    zone: str
    is_spot: bool
    registered: Resources
    free: Resources
    #: Seconds since 1970.
    launched_s: float
    #: Whether jobs can start on it; False while it boots.
    is_ready: bool = True
    #: Seconds since 1970; None while the instance exists.
    ended_s: float | None = None
    #: Whether EC2 took it away.
    was_reclaimed: bool = False


class ShownInstances(Protocol):
    """The instances of compute environments in EC2."""

    def show(self, instances: Iterable[Instance]) -> None: ...

    def ended_ids(self) -> list[str]: ...


def instance_id(host_id: str) -> str:
    """Return the id of an instance; ``host_id`` is a task id for a task without an instance."""
    return host_id if host_id.startswith("i-") else f"i-0{host_id[:16]}"


def container_instance_arn(state: EndpointState, environment: Document, host_id: str) -> str:
    """Return the ARN of an instance in the cluster of its environment.

    ``host_id`` is empty for a task on Fargate, which has no instance: the result is then empty too.
    The only instance of an UNMANAGED environment is this machine.
    """
    if environment["type"] == "UNMANAGED":
        host_id = names.own_instance_id(environment["uuid"])
    if not host_id:
        return ""
    cluster = names.strip_arn(environment["ecsClusterArn"])
    return names.container_instance_arn(state.region, cluster, host_id)


def find_instance(state: EndpointState, host_id: str) -> Instance | None:
    """Return an instance of this region that has not ended; None for any other id."""
    for fleet in state.scheduler.fleets():
        if state.get(ENVIRONMENT, fleet.environment.name) is None:
            continue
        for host in fleet.hosts:
            if host.host_id == host_id:
                return to_instance(state, host)
    return None


def find_ecs_instance(state: EndpointState, host_id: str) -> Instance | None:
    """Return an instance that runs tasks of ECS; None for any other id."""
    instance = state.ecs.instances.get(host_id)
    if instance is None or not instance.type_name:
        return None
    return Instance(
        instance_id=instance.ec2_id,
        type_name=instance.type_name,
        environment={},
        subnet="",
        zone=instance.zone,
        is_spot=instance.is_spot,
        registered=state.machine,
        free=state.machine,
        launched_s=instance.registered_s,
    )


def is_task(state: EndpointState, task_id: str) -> bool:
    """Return whether a task of this region has the id."""
    key = names.parse_task_id(task_id, state.salt)
    return key is not None and state.job_with_number(key.job_number) is not None


def find_own_instance(state: EndpointState, task_id: str) -> Instance | None:
    """Return this machine if a task of an UNMANAGED environment has the id and runs."""
    key = names.parse_task_id(task_id, state.salt)
    job = None if key is None else state.job_with_number(key.job_number)
    if key is None or job is None:
        return None
    task = state.loop.find_running_task(job["jobId"], key.child)
    environment = None if task is None else state.get(ENVIRONMENT, task.compute_environment)
    is_own = environment is not None and environment["type"] == "UNMANAGED"
    return _own_instance(state, environment) if environment is not None and is_own else None


def instances_of(
    state: EndpointState, environment: Document, *, with_ended: bool = False
) -> list[Instance]:
    """Return the instances of a compute environment, oldest first.

    An UNMANAGED environment has one: this machine.
    """
    if environment["type"] == "UNMANAGED":
        return [_own_instance(state, environment)]
    fleet = state.scheduler.fleet(environment["computeEnvironmentArn"])
    if fleet is None:
        return []
    ended_hosts = fleet.ended_hosts if with_ended else ()
    return [to_instance(state, host) for host in (*ended_hosts, *fleet.hosts)]


def all_instances(state: EndpointState) -> list[Instance]:
    """Return the EC2 instances of all compute environments, also those that have ended lately."""
    return [
        instance
        for environment in state.documents(ENVIRONMENT)
        if environment["type"] == "MANAGED"
        for instance in instances_of(state, environment, with_ended=True)
    ]


def to_instance(state: EndpointState, host: Host) -> Instance:
    environment = state.require(ENVIRONMENT, host.environment.name)
    subnets = environment["computeResources"]["subnets"]
    subnet = subnets[host.number % len(subnets)]
    return Instance(
        instance_id=host.host_id,
        type_name=host.type.name,
        environment=environment,
        subnet=subnet,
        zone=state.zone_of_subnet(subnet),
        is_spot=host.is_spot,
        registered=host.type.resources,
        free=host.free,
        launched_s=_wall_time_s(state, host.launched_ms),
        is_ready=host.ready_ms <= host.fleet.now_ms,
        ended_s=None if host.ended_ms is None else _wall_time_s(state, host.ended_ms),
        was_reclaimed=host.was_reclaimed,
    )


def _own_instance(state: EndpointState, environment: Document) -> Instance:
    return Instance(
        instance_id=names.own_instance_id(environment["uuid"]),
        type_name="",
        environment=environment,
        subnet="",
        zone=f"{state.region}a",
        is_spot=True,  # Else its metadata would have no notice of a reclaim.
        registered=state.machine,
        free=state.scheduler.free(environment["computeEnvironmentArn"]),
        launched_s=state.created_ms / 1000,
    )


def _wall_time_s(state: EndpointState, monotonic_ms: int) -> float:
    """Return seconds since 1970; the scheduler's times are on the monotonic clock."""
    return state.clock() - (time.monotonic() - monotonic_ms / 1000)
