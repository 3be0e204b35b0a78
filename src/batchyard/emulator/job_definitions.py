"""Job definitions (facts, 5): the operations, and the checks that SubmitJob shares with them."""

from __future__ import annotations

import json
from collections.abc import Iterable

from batchyard.batch import limits, validation
from batchyard.batch.jobs import Resources
from batchyard.emulator import names
from batchyard.emulator.api_errors import InvalidRequestError, InvalidSubmissionError
from batchyard.emulator.paging import page, size_of_page
from batchyard.emulator.state import CONSUMABLE, DEFINITION, Document, EndpointState

#: what is a task's in ecsProperties and the container's in containerProperties
_OF_TASK = {
    "volumes": "volumes",
    "executionRoleArn": "executionRoleArn",
    "taskRoleArn": "jobRoleArn",
    "networkConfiguration": "networkConfiguration",
    "ephemeralStorage": "ephemeralStorage",
    "runtimePlatform": "runtimePlatform",
    "enableExecuteCommand": "enableExecuteCommand",
}
#: what only a container among several has use for
_ONLY_OF_ECS = (
    "name",
    "essential",
    "dependsOn",
    "firelensConfiguration",
    "startTimeout",
    "stopTimeout",
)
#: vCPUs of Fargate -> MiB that go with them (facts, 5.3)
_FARGATE_PAIRS: dict[float, Iterable[int]] = {
    0.25: (512, 1024, 2048),
    0.5: range(1024, 4096 + 1, 1024),
    1: range(2048, 8192 + 1, 1024),
    2: range(4096, 16384 + 1, 1024),
    4: range(8192, 30720 + 1, 1024),
    8: range(16384, 61440 + 1, 4096),
    16: range(32768, 122880 + 1, 8192),
}


def register(yard: EndpointState, request: Document) -> Document:
    name = names.require_name("jobDefinitionName", request["jobDefinitionName"])
    size = size_of(request)
    if size > limits.MAX_DEFINITION_BYTES:
        raise InvalidSubmissionError(
            f"Job definition size must be less than 24 KiB, got {-(-size // 1024)} KiB"
        )
    if request["type"] != "container":
        raise InvalidRequestError(
            "this endpoint runs jobs of one container; multinode job definitions are not for it"
        )
    if "eksProperties" in request:
        raise InvalidRequestError(
            "this endpoint runs jobs on ECS-type compute; eksProperties is not for it"
        )
    if "MANAGED_INSTANCES" in request.get("platformCapabilities", []):
        raise InvalidRequestError(
            "this endpoint has EC2 and Fargate; MANAGED_INSTANCES is not for it"
        )
    is_fargate = request.get("platformCapabilities") == ["FARGATE"]
    container = _container_of(request)
    check_container(container, is_fargate=is_fargate)
    if "retryStrategy" in request:
        request["retryStrategy"] = checked_retry(request["retryStrategy"])
    refuse(validation.timeout_problems(request.get("timeout", {})))
    refuse(validation.priority_problems("schedulingPriority", request))
    check_consumables(yard, request.get("consumableResourceProperties", {}))
    revision = 1 + max((d["revision"] for d in revisions(yard, name)), default=0)
    document: Document = {
        **{key: value for key, value in request.items() if key != "tags"},
        "jobDefinitionArn": yard.arn(DEFINITION, f"{name}:{revision}"),
        "revision": revision,
        "status": "ACTIVE",
        "tags": request.get("tags", {}),
        "containerOrchestrationType": "ECS",
    }
    document.setdefault("platformCapabilities", ["EC2"])
    document.setdefault("parameters", {})
    yard.keep(DEFINITION, f"{name}:{revision}", document)
    yard.save()
    return {
        "jobDefinitionName": name,
        "jobDefinitionArn": document["jobDefinitionArn"],
        "revision": revision,
    }


def deregister(yard: EndpointState, request: Document) -> Document:
    wanted = names.bare(request["jobDefinition"])
    document = yard.get(DEFINITION, wanted)
    if document is None:
        if ":" not in wanted:
            raise InvalidRequestError(
                f"{request['jobDefinition']}: a revision must be named, as in {wanted}:1"
            )
        return {}
    yard.keep(DEFINITION, wanted, {**document, "status": "INACTIVE"})
    yard.save()
    return {}


def describe(yard: EndpointState, request: Document) -> Document:
    found = sorted(yard.all(DEFINITION), key=lambda d: (d["jobDefinitionName"], -d["revision"]))
    wanted = request.get("jobDefinitions")
    if wanted:
        if len(wanted) > 100:
            raise InvalidRequestError("Maximum number of job definitions supported is 100.")
        bare = {names.bare(one) for one in wanted}
        found = [
            d
            for d in found
            if {d["jobDefinitionName"], f"{d['jobDefinitionName']}:{d['revision']}"} & bare
        ]
    if "jobDefinitionName" in request:
        name = names.bare(request["jobDefinitionName"])
        found = [
            d
            for d in found
            if name in (d["jobDefinitionName"], f"{d['jobDefinitionName']}:{d['revision']}")
        ]
    if "status" in request:
        found = [d for d in found if d["status"] == request["status"]]
    some, token = page(found, size_of_page(request, 100), request.get("nextToken"))
    return {"jobDefinitions": list(some), **({"nextToken": token} if token else {})}


def revisions(yard: EndpointState, name: str) -> list[Document]:
    return [document for document in yard.all(DEFINITION) if document["jobDefinitionName"] == name]


def active(yard: EndpointState, wanted: str) -> Document:
    """The definition that SubmitJob means: a revision, or the newest that is ACTIVE."""
    bare = names.bare(wanted)
    if ":" in bare:
        document = yard.get(DEFINITION, bare)
        if document is None:
            raise InvalidSubmissionError(f"JobDefinition {wanted} does not exist")
        if document["status"] != "ACTIVE":
            raise InvalidSubmissionError(f"JobDefinition {wanted} is not ACTIVE")
        return document
    candidates = [d for d in revisions(yard, bare) if d["status"] == "ACTIVE"]
    if not candidates:
        raise InvalidSubmissionError(
            f"JobDefinition {wanted} does not exist, or none of its revisions is ACTIVE"
        )
    return max(candidates, key=lambda d: int(d["revision"]))


def size_of(request: Document) -> int:
    """How many bytes it is on its way."""
    return len(json.dumps(request, separators=(",", ":"), ensure_ascii=False).encode())


def container_of(definition: Document) -> Document:
    """The properties of the one container, however the definition spells them."""
    return _container_of(definition)


# -- checks -----------------------------------------------------------------------------------------------------


def _container_of(request: Document) -> Document:
    if "ecsProperties" not in request:
        if "containerProperties" not in request:
            raise InvalidRequestError(
                "containerProperties or ecsProperties must be provided for type container"
            )
        container: Document = request["containerProperties"]
        return container
    if "containerProperties" in request:
        raise InvalidRequestError("containerProperties and ecsProperties exclude each other")
    tasks = request["ecsProperties"]["taskProperties"]
    if len(tasks) != 1:
        raise InvalidRequestError("ecsProperties.taskProperties must have exactly one element")
    containers = tasks[0]["containers"]
    if len(containers) != 1:
        raise InvalidRequestError(
            "this endpoint runs jobs of one container; ecsProperties with several are not for it"
        )
    if not containers[0].get("essential", True):
        raise InvalidRequestError(
            "ecsProperties must have at least one container that is essential"
        )
    # What an ECS task has around its container belongs to the container elsewhere.
    around = {ours: tasks[0][theirs] for theirs, ours in _OF_TASK.items() if theirs in tasks[0]}
    return {
        **{member: value for member, value in containers[0].items() if member not in _ONLY_OF_ECS},
        **around,
    }


def check_container(container: Document, *, is_fargate: bool) -> None:
    if not container.get("image"):
        raise InvalidSubmissionError("containerProperties.image must be provided")
    if len(container["image"]) > 255:
        raise InvalidSubmissionError("containerProperties.image must be at most 255 characters")
    refuse(validation.environment_problems(container.get("environment", [])))
    refuse(validation.secret_problems(container))
    resources_of(container, is_fargate=is_fargate)
    if is_fargate and "executionRoleArn" not in container:
        raise InvalidSubmissionError("executionRoleArn must be provided for FARGATE")
    volumes = {volume.get("name") for volume in container.get("volumes", [])}
    for mount in container.get("mountPoints", []):
        if not mount.get("containerPath"):
            raise InvalidSubmissionError("mountPoints: containerPath must be provided")
        if not mount.get("sourceVolume") or mount["sourceVolume"] not in volumes:
            raise InvalidSubmissionError(
                f"mountPoints: there is no volume named {mount.get('sourceVolume')!r}"
            )


def resources_of(container: Document, *, is_fargate: bool = False) -> Resources:
    """What the container asks for; raises where it is incomplete or senseless (facts, 5.3)."""
    given: dict[str, str] = {}
    for requirement in container.get("resourceRequirements", []):
        if requirement["type"] in given:
            raise InvalidSubmissionError(
                f"resourceRequirements must not have two entries of type {requirement['type']}"
            )
        given[requirement["type"]] = requirement["value"]
    for old, new in (("vcpus", "VCPU"), ("memory", "MEMORY")):
        if container.get(old):
            given.setdefault(new, str(container[old]))
    for kind, lower in (("VCPU", "vcpus"), ("MEMORY", "memory")):
        if kind not in given:
            raise InvalidSubmissionError(
                f"resourceRequirements must have an entry of type {kind} ({lower} is required)"
            )
    memory_mib = _number("MEMORY", given["MEMORY"])
    if is_fargate:
        return _fargate_resources(given, memory_mib)
    gpus = _number("GPU", given["GPU"]) if "GPU" in given else 0
    return Resources(_number("VCPU", given["VCPU"]), memory_mib, gpus)


def _fargate_resources(given: dict[str, str], memory_mib: int) -> Resources:
    if "GPU" in given:
        raise InvalidSubmissionError("resourceRequirements of type GPU are not for FARGATE")
    try:
        vcpus = float(given["VCPU"])
    except ValueError:
        vcpus = 0.0
    if memory_mib not in _FARGATE_PAIRS.get(vcpus, ()):
        raise InvalidSubmissionError(
            f"Fargate does not have {given['VCPU']} VCPU with {memory_mib} MiB of MEMORY"
        )
    # The scheduler counts whole vCPUs.
    return Resources(max(1, int(vcpus)), memory_mib)


def _number(kind: str, value: str) -> int:
    refuse(validation.requirement_problems(kind, value, is_fargate=False))
    return validation.parse_whole_number(value) or 0


def checked_retry(strategy: Document) -> Document:
    """facts, 1.3 and 1.4; actions as the service returns them, in lower case."""
    refuse(validation.retry_problems(strategy))
    rules = strategy.get("evaluateOnExit", [])
    return {
        **strategy,
        **(
            {"evaluateOnExit": [{**r, "action": r["action"].lower()} for r in rules]}
            if rules
            else {}
        ),
    }


def check_tags(tags: dict[str, str]) -> None:
    refuse(validation.tag_problems(tags))


def check_consumables(yard: EndpointState, properties: Document) -> None:
    refuse(validation.consumable_problems(properties))
    for entry in properties.get("consumableResourceList", []):
        if yard.get(CONSUMABLE, entry.get("consumableResource", "")) is None:
            raise InvalidSubmissionError(
                f"consumable resource {entry.get('consumableResource')!r} does not exist"
            )


def refuse(problems: Iterable[str]) -> None:
    """AWS says the first thing that is wrong."""
    for problem in problems:
        raise InvalidSubmissionError(problem)
