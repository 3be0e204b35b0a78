"""ListContainerInstances and DescribeContainerInstances of the clusters of UNMANAGED environments.

Such a cluster has one container instance: this machine. moto answers for all other clusters.
"""

from __future__ import annotations

from typing import Any

from batchyard.emulator import names
from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.state import ENVIRONMENT, Document, EndpointState


def list_container_instances(state: EndpointState, request: Document) -> Document | None:
    instance = _find_instance(state, request)
    if instance is None:
        return None
    if "filter" in request:
        raise ApiError(
            "InvalidParameterException", "this endpoint has no filter for container instances"
        )
    is_listed = request.get("status", "ACTIVE") == "ACTIVE"
    return {"containerInstanceArns": [instance["containerInstanceArn"]] if is_listed else []}


def describe_container_instances(state: EndpointState, request: Document) -> Document | None:
    instance = _find_instance(state, request)
    if instance is None:
        return None
    instance_name = names.strip_arn(instance["containerInstanceArn"])
    requested: list[str] = request["containerInstances"]
    missing = [name for name in requested if names.strip_arn(name) != instance_name]
    return {
        "containerInstances": [instance] if len(missing) < len(requested) else [],
        "failures": [{"arn": name, "reason": "MISSING"} for name in missing],
    }


def _find_instance(state: EndpointState, request: Document) -> Document | None:
    """Return the instance of the requested cluster, or None for a cluster that moto has."""
    cluster = names.strip_arn(request.get("cluster", "default"))
    for environment in state.documents(ENVIRONMENT):
        is_unmanaged = environment["type"] == "UNMANAGED"
        if is_unmanaged and names.strip_arn(environment["ecsClusterArn"]) == cluster:
            return _describe_machine(state, cluster, environment["uuid"].replace("-", ""))
    return None


def _describe_machine(state: EndpointState, cluster: str, instance: str) -> Document:
    """Describe this machine; ``instance`` is 32 hexadecimal digits that identify it."""
    machine = state.machine
    gpu_ids = [f"GPU-{number}" for number in range(machine.gpus)]
    return {
        "containerInstanceArn": names.container_instance_arn(state.region, cluster, instance),
        "ec2InstanceId": names.instance_id(instance),
        "status": "ACTIVE",
        "agentConnected": True,
        "registeredResources": [
            _integer_resource("CPU", machine.vcpus * 1024),
            _integer_resource("MEMORY", machine.memory_mib),
            {"name": "GPU", "type": "STRINGSET", "stringSetValue": gpu_ids},
        ],
        "attributes": [{"name": "com.amazonaws.ecs.capability.logging-driver.awslogs"}],
    }


def _integer_resource(name: str, amount: int) -> dict[str, Any]:
    return {"name": name, "type": "INTEGER", "integerValue": amount}
