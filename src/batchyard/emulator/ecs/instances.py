"""Container instances: EC2 instances whose user data names a cluster, or that were registered.

RegisterContainerInstance, which the agent of ECS calls on AWS, registers one by hand: without an
instance identity document it is this machine.
"""

from __future__ import annotations

import json
import re
import uuid

from batchyard import ec2_types
from batchyard.batch.jobs import Resources
from batchyard.emulator import names
from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.ecs import clusters
from batchyard.emulator.ecs.container_specs import invalid
from batchyard.emulator.ecs.paging import page
from batchyard.emulator.ecs.records import ContainerInstance, EcsEvent
from batchyard.emulator.ecs.surroundings import Ec2Instance
from batchyard.emulator.state import Document, EndpointState

_AGENT_VERSION = "1.90.0"
_MAX_DESCRIBED = 100


# -- which instances there are --------------------------------------------------------------------


def join_new_instances(state: EndpointState) -> list[Ec2Instance]:
    """Register the EC2 instances that have booted; return those that have not."""
    booting = []
    for instance in state.ecs.surroundings.list_instances():
        registered = state.ecs.instances.get(instance.instance_id)
        if registered is not None or instance.instance_id in state.ecs.removed_instances:
            continue
        if instance.launched_s + state.host_delays.launch_s > state.clock():
            booting.append(instance)
        elif state.ecs.surroundings.find_cluster(instance.cluster) is not None:
            resources = ec2_types.registered_resources(instance.type_name) or state.machine
            _add(state, instance, resources)
    return booting


def find_ended_instances(state: EndpointState) -> list[ContainerInstance]:
    """Return the instances that EC2 has ended. Instances that EC2 never had do not end."""
    find_type = state.ecs.surroundings.find_instance_type
    return [
        instance
        for instance in state.ecs.instances.values()
        if instance.is_in_ec2 and not find_type(instance.ec2_id)
    ]


def _add(
    state: EndpointState, instance: Ec2Instance, resources: Resources, *, is_in_ec2: bool = True
) -> ContainerInstance:
    arn = names.container_instance_arn(state.region, instance.cluster, instance.instance_id)
    container_instance = ContainerInstance(
        arn=arn,
        ec2_id=instance.instance_id,
        cluster=instance.cluster,
        type_name=instance.type_name,
        zone=instance.zone,
        is_spot=instance.is_spot,
        cpu_units=resources.vcpus * 1024,
        memory_mib=resources.memory_mib,
        gpu_ids=tuple(_gpu_id(instance.instance_id, n) for n in range(resources.gpus)),
        registered_s=state.clock(),
        group=instance.group,
        attributes={
            **builtin_attributes(instance.type_name, instance.zone),
            **instance.attributes,
        },
        is_in_ec2=is_in_ec2,
        idle_since_s=state.clock(),
    )
    state.ecs.instances[instance.instance_id] = container_instance
    return container_instance


def builtin_attributes(type_name: str, zone: str) -> dict[str, str]:
    """Return the attributes that the agent gives to each instance."""
    return {
        "ecs.availability-zone": zone,
        "ecs.instance-type": type_name,
        "ecs.os-type": "linux",
        "ecs.cpu-architecture": "x86_64",
    }


def _gpu_id(instance_id: str, number: int) -> str:
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{instance_id}/{number}')}"


def instances_of(state: EndpointState, cluster: str) -> list[ContainerInstance]:
    return [i for i in state.ecs.instances.values() if i.cluster == cluster]


def find(state: EndpointState, cluster: str, name_or_arn: str) -> ContainerInstance | None:
    instance_id = names.strip_arn(name_or_arn)
    return next((i for i in instances_of(state, cluster) if i.id == instance_id), None)


# -- operations -----------------------------------------------------------------------------------


def register(state: EndpointState, request: Document) -> Document:
    cluster = clusters.require(state, request)
    instance_id, type_name = _read_identity(state, request)
    type_name = state.ecs.surroundings.find_instance_type(instance_id) or type_name
    resources = ec2_types.registered_resources(type_name) or state.machine
    resources = _read_total_resources(request.get("totalResources", []), resources)
    if instance_id not in state.ecs.instances:
        instance = Ec2Instance(
            instance_id, cluster.name, type_name, f"{state.region}a", False, state.clock()
        )
        is_in_ec2 = bool(state.ecs.surroundings.find_instance_type(instance_id))
        _add(state, instance, resources, is_in_ec2=is_in_ec2)
        state.ecs.removed_instances.pop(instance_id, None)
    added = state.ecs.instances[instance_id]
    added.attributes |= {a["name"]: a.get("value", "") for a in request.get("attributes", [])}
    added.tags = request.get("tags", added.tags)
    return {"containerInstance": describe_instance(state, added)}


def _read_identity(state: EndpointState, request: Document) -> tuple[str, str]:
    """Return the id and the type of the instance that the request registers."""
    try:
        document = json.loads(request.get("instanceIdentityDocument", "{}"))
        instance_id = document.get("instanceId") or names.new_instance_id()
        type_name = document.get("instanceType") or ""
    except (ValueError, AttributeError, RecursionError):
        raise invalid("instanceIdentityDocument is not a JSON object") from None
    if not isinstance(instance_id, str) or not re.fullmatch(r"i-[0-9a-f]{8,17}", instance_id):
        raise invalid("instanceIdentityDocument has no instanceId like i-0123456789abcdef0")
    return instance_id, str(type_name)


def _read_total_resources(totals: list[Document], default: Resources) -> Resources:
    by_name = {entry.get("name"): entry for entry in totals}
    cpu_units = by_name.get("CPU", {}).get("integerValue", default.vcpus * 1024)
    memory_mib = by_name.get("MEMORY", {}).get("integerValue", default.memory_mib)
    gpus = by_name.get("GPU", {}).get("stringSetValue")
    return Resources(cpu_units // 1024, memory_mib, default.gpus if gpus is None else len(gpus))


def list_instances(state: EndpointState, request: Document) -> Document:
    cluster = clusters.require(state, request)
    if "filter" in request:
        raise invalid("this endpoint has no filter for container instances")
    status = request.get("status")
    arns = [
        instance.arn
        for instance in instances_of(state, cluster.name)
        if status is None or instance.status == status
    ]
    return page("containerInstanceArns", arns, request)


def describe(state: EndpointState, request: Document) -> Document:
    cluster = clusters.require(state, request)
    requested = request["containerInstances"]
    if not 1 <= len(requested) <= _MAX_DESCRIBED:
        raise invalid(f"Container instances must be between 1 and {_MAX_DESCRIBED}.")
    by_name = {name: find(state, cluster.name, name) for name in requested}
    return {
        "containerInstances": [describe_instance(state, i) for i in by_name.values() if i],
        "failures": [
            {"arn": name, "reason": "MISSING"} for name, i in by_name.items() if i is None
        ],
    }


def update_state(state: EndpointState, request: Document) -> Document:
    """UpdateContainerInstancesState: DRAINING keeps new tasks away from an instance."""
    cluster = clusters.require(state, request)
    if request["status"] not in ("ACTIVE", "DRAINING"):
        raise invalid("Container instance status should be one of [ACTIVE, DRAINING]")
    instances = {n: find(state, cluster.name, n) for n in request["containerInstances"]}
    for instance in instances.values():
        if instance is not None:
            instance.status = request["status"]
            instance.is_changed = True
    return {
        "containerInstances": [describe_instance(state, i) for i in instances.values() if i],
        "failures": [{"arn": n, "reason": "MISSING"} for n, i in instances.items() if i is None],
    }


def require(state: EndpointState, request: Document) -> ContainerInstance:
    """Return the container instance of a request. Raises ApiError."""
    cluster = clusters.require(state, request)
    instance = find(state, cluster.name, request["containerInstance"])
    if instance is None:
        raise ApiError("InvalidParameterException", "The referenced container instance is missing.")
    return instance


def describe_instance(state: EndpointState, instance: ContainerInstance) -> Document:
    room = state.ecs.room_of(instance)
    tasks = state.ecs.tasks_on(instance)
    running = sum(task.started_s is not None for task in tasks)
    free_gpus = state.ecs.free_gpu_ids(instance)
    attributes = [
        {"name": "com.amazonaws.ecs.capability.logging-driver.awslogs"},
        *({"name": name, "value": value} for name, value in instance.attributes.items() if value),
    ]
    return {
        "containerInstanceArn": instance.arn,
        "ec2InstanceId": instance.ec2_id,
        "version": instance.version,
        "versionInfo": {"agentVersion": _AGENT_VERSION, "dockerVersion": "DockerVersion: 25.0"},
        "status": instance.status,
        "agentConnected": instance.is_agent_connected,
        "runningTasksCount": running,
        "pendingTasksCount": len(tasks) - running,
        "registeredAt": instance.registered_s,
        "registeredResources": _resources(
            instance.cpu_units, instance.memory_mib, [], list(instance.gpu_ids)
        ),
        "remainingResources": _resources(
            room.cpu_units, room.memory_mib, sorted(room.used_ports), free_gpus
        ),
        "attributes": attributes,
        "attachments": [],
        "tags": instance.tags,
    }


def make_instance_event(
    state: EndpointState, instance: ContainerInstance, **changes: object
) -> EcsEvent:
    """Return the event about a container instance as it is now, with these changes."""
    detail = describe_instance(state, instance) | changes
    cluster = state.ecs.surroundings.find_cluster(instance.cluster)
    detail |= {"clusterArn": cluster.arn if cluster else "", "updatedAt": state.clock()}
    return EcsEvent("ECS Container Instance State Change", instance.arn, detail)


def _resources(
    cpu_units: int, memory_mib: int, ports: list[int], gpu_ids: list[str]
) -> list[Document]:
    used_ports = [*("22", "2375", "2376", "51678", "51679"), *map(str, ports)]
    return [
        {"name": "CPU", "type": "INTEGER", "integerValue": cpu_units},
        {"name": "MEMORY", "type": "INTEGER", "integerValue": memory_mib},
        {"name": "PORTS", "type": "STRINGSET", "stringSetValue": used_ports},
        {"name": "PORTS_UDP", "type": "STRINGSET", "stringSetValue": []},
        {"name": "GPU", "type": "STRINGSET", "stringSetValue": gpu_ids},
    ]
