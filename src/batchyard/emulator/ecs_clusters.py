"""The one instance in the cluster of an UNMANAGED environment, as ECS describes it: this machine."""

from __future__ import annotations

from typing import Any

from batchyard.emulator import names
from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.state import ENVIRONMENT, Document, EndpointState

#: what is answered here; everything else of ECS is for others
OPERATIONS = ("ListContainerInstances", "DescribeContainerInstances")


def answer(yard: EndpointState, operation: str, request: Document) -> Document | None:
    """None where the cluster is not that of an UNMANAGED environment."""
    cluster = names.bare(request.get("cluster", "default"))
    owner = next((one for one in yard.all(ENVIRONMENT) if _cluster_of(one) == cluster), None)
    if owner is None or owner["type"] != "UNMANAGED":
        return None
    machine = _machine(yard, cluster, owner["uuid"].replace("-", ""))
    arn = machine["containerInstanceArn"]
    if operation == "ListContainerInstances":
        if "filter" in request:
            raise ApiError(
                "InvalidParameterException", "this endpoint has no filter for container instances"
            )
        return {
            "containerInstanceArns": [arn] if request.get("status", "ACTIVE") == "ACTIVE" else []
        }
    wanted = request["containerInstances"]
    others = [one for one in wanted if names.bare(one) != names.bare(arn)]
    return {
        "containerInstances": [machine] if len(others) < len(wanted) else [],
        "failures": [{"arn": one, "reason": "MISSING"} for one in others],
    }


def _cluster_of(environment: Document) -> str:
    return names.bare(environment["ecsClusterArn"])


def _machine(yard: EndpointState, cluster: str, identity: str) -> Document:
    """``identity``: 32 hexadecimal digits."""
    has = yard.machine
    return {
        "containerInstanceArn": names.container_instance_arn(yard.region, cluster, identity),
        "ec2InstanceId": names.instance_id(identity),
        "status": "ACTIVE",
        "agentConnected": True,
        "registeredResources": [
            _number("CPU", has.vcpus * 1024),
            _number("MEMORY", has.memory_mib),
            {
                "name": "GPU",
                "type": "STRINGSET",
                "stringSetValue": [f"GPU-{n}" for n in range(has.gpus)],
            },
        ],
        "attributes": [{"name": "com.amazonaws.ecs.capability.logging-driver.awslogs"}],
    }


def _number(name: str, value: int) -> dict[str, Any]:
    return {"name": name, "type": "INTEGER", "integerValue": value}
