"""ECS clusters of compute environments, and their container instances. ecs/ has all others.

An UNMANAGED environment has one container instance: this machine.
"""

from __future__ import annotations

from typing import Any

from batchyard.embedded.runner import Task
from batchyard.emulator import hosts, names
from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.ecs import clusters, instances
from batchyard.emulator.hosts import Instance
from batchyard.emulator.state import ENVIRONMENT, JOB, Document, EndpointState

_AGENT_VERSION = "1.90.0"
#: ECS describes a container instance that has ended for an hour, as INACTIVE.
_REMEMBERED_S = 3600


def find_environment(state: EndpointState, request: Document) -> Document | None:
    """Return the compute environment of the requested cluster; None for a cluster of moto."""
    cluster = names.strip_arn(request.get("cluster", "default"))
    for environment in state.documents(ENVIRONMENT):
        if cluster_name(environment) == cluster:
            return environment
    return None


def cluster_name(environment: Document) -> str:
    return names.strip_arn(environment["ecsClusterArn"])


# -- clusters -------------------------------------------------------------------------------------


def add_to_list(state: EndpointState, request: Document, answer: Document) -> Document:
    """Add the clusters of compute environments to the last page of moto's ListClusters."""
    if answer.get("nextToken"):
        return answer
    arns = [environment["ecsClusterArn"] for environment in state.documents(ENVIRONMENT)]
    return answer | {"clusterArns": [*answer["clusterArns"], *arns]}


def add_to_description(state: EndpointState, request: Document, answer: Document) -> Document:
    """Add the clusters of compute environments to moto's DescribeClusters."""
    requested = {names.strip_arn(name) for name in request.get("clusters", [])}
    environments = [
        environment
        for environment in state.documents(ENVIRONMENT)
        if cluster_name(environment) in requested
    ]
    own_names = {cluster_name(environment) for environment in environments}
    return answer | {
        "clusters": [
            *(
                cluster | clusters.count_tasks(state, cluster["clusterName"])
                for cluster in answer["clusters"]
            ),
            *(_describe_cluster(state, environment) for environment in environments),
        ],
        "failures": [
            failure
            for failure in answer.get("failures", [])
            if names.strip_arn(failure["arn"]) not in own_names
        ],
    }


def _describe_cluster(state: EndpointState, environment: Document) -> Document:
    running, pending = count_tasks(state, environment)
    return {
        "clusterArn": environment["ecsClusterArn"],
        "clusterName": cluster_name(environment),
        "status": "ACTIVE",
        "registeredContainerInstancesCount": len(_registered(state, environment)),
        "runningTasksCount": running,
        "pendingTasksCount": pending,
        "activeServicesCount": 0,
        "statistics": [],
        "tags": [],
        "settings": [],
        "capacityProviders": [],
        "defaultCapacityProviderStrategy": [],
    }


def running_tasks(state: EndpointState, environment: Document) -> list[Task]:
    """Return the tasks in an environment that run or are being started."""
    name = environment["computeEnvironmentName"]
    return [
        task
        for task in state.loop.running_tasks()
        # Another region may have an environment of the same name.
        if task.compute_environment == name and state.get(JOB, task.job_id) is not None
    ]


def count_tasks(state: EndpointState, environment: Document, host_id: str = "") -> tuple[int, int]:
    """Return how many tasks run and how many are being started, in all or on one instance."""
    tasks = [
        task for task in running_tasks(state, environment) if not host_id or task.host_id == host_id
    ]
    running = sum(task.started_ms is not None for task in tasks)
    return running, len(tasks) - running


# -- container instances --------------------------------------------------------------------------


def list_container_instances(state: EndpointState, request: Document) -> Document:
    environment = find_environment(state, request)
    if environment is None:
        return instances.list_instances(state, request)
    if "filter" in request:
        raise ApiError(
            "InvalidParameterException", "this endpoint has no filter for container instances"
        )
    if request.get("status", "ACTIVE") != "ACTIVE":
        return {"containerInstanceArns": []}
    return {
        "containerInstanceArns": [
            container_instance_arn(state, instance) for instance in _registered(state, environment)
        ]
    }


def describe_container_instances(state: EndpointState, request: Document) -> Document:
    environment = find_environment(state, request)
    if environment is None:
        return instances.describe(state, request)
    by_name = {
        names.strip_arn(container_instance_arn(state, instance)): instance
        for instance in hosts.instances_of(state, environment, with_ended=True)
        if instance.is_ready and state.clock() - (instance.ended_s or state.clock()) < _REMEMBERED_S
    }
    requested = {name: names.strip_arn(name) for name in request["containerInstances"]}
    return {
        "containerInstances": [
            _describe_instance(state, by_name[name])
            for name in dict.fromkeys(requested.values())
            if name in by_name
        ],
        "failures": [
            {"arn": arn, "reason": "MISSING"}
            for arn, name in requested.items()
            if name not in by_name
        ],
    }


def container_instance_arn(state: EndpointState, instance: Instance) -> str:
    return hosts.container_instance_arn(state, instance.environment, instance.instance_id)


def _registered(state: EndpointState, environment: Document) -> list[Instance]:
    """Return the instances whose ECS agent has joined the cluster."""
    return [instance for instance in hosts.instances_of(state, environment) if instance.is_ready]


def _describe_instance(state: EndpointState, instance: Instance) -> Document:
    host_id = "" if instance.environment["type"] == "UNMANAGED" else instance.instance_id
    running, pending = count_tasks(state, instance.environment, host_id)
    registered, free = instance.registered, instance.free
    gpu_ids = [f"GPU-{number}" for number in range(registered.gpus)]
    return {
        "containerInstanceArn": container_instance_arn(state, instance),
        "ec2InstanceId": instance.instance_id,
        "version": 1,
        "versionInfo": {"agentVersion": _AGENT_VERSION},
        "status": "ACTIVE" if instance.ended_s is None else "INACTIVE",
        "agentConnected": instance.ended_s is None,
        "runningTasksCount": running,
        "pendingTasksCount": pending,
        "registeredAt": instance.launched_s,
        "registeredResources": [
            *_integer_resources(registered.vcpus, registered.memory_mib),
            {"name": "GPU", "type": "STRINGSET", "stringSetValue": gpu_ids},
        ],
        "remainingResources": [
            *_integer_resources(free.vcpus, free.memory_mib),
            {"name": "GPU", "type": "STRINGSET", "stringSetValue": gpu_ids[: free.gpus]},
        ],
        "attributes": _attributes(instance),
        "attachments": [],
        "tags": [],
    }


def _integer_resources(vcpus: int, memory_mib: int) -> list[dict[str, Any]]:
    return [
        {"name": "CPU", "type": "INTEGER", "integerValue": vcpus * 1024},
        {"name": "MEMORY", "type": "INTEGER", "integerValue": memory_mib},
    ]


def _attributes(instance: Instance) -> list[dict[str, str]]:
    attributes = [
        {"name": "com.amazonaws.ecs.capability.logging-driver.awslogs"},
        {"name": "ecs.availability-zone", "value": instance.zone},
        {"name": "ecs.os-type", "value": "linux"},
    ]
    if instance.type_name:
        attributes.append({"name": "ecs.instance-type", "value": instance.type_name})
    return attributes
