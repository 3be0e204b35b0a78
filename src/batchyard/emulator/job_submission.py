"""SubmitJob (facts, 1.6, 1.7, 2 and 5).

The document of a job is the part of DescribeJobs' answer that does not change. Members that begin
with an underscore are the endpoint's own and are not part of any answer.
"""

from __future__ import annotations

import uuid
from typing import Any

from batchyard.batch import limits, validation
from batchyard.batch.dependencies import InvalidJobError
from batchyard.batch.jobs import (
    Action,
    Dependency,
    DependencyType,
    EvaluateOnExit,
    Job,
    JobState,
    Resources,
    RetryStrategy,
)
from batchyard.embedded.store import JobRow
from batchyard.emulator import aws_shapes, job_definitions, names
from batchyard.emulator.api_errors import RequestExecutionError, raise_first
from batchyard.emulator.containers import check_container, container_of, requested_resources
from batchyard.emulator.state import CONSUMABLE, JOB, QUEUE, Document, EndpointState

#: Active share identifiers of a queue (facts, 6).
_MAX_SHARES = 500
_DEPRECATED_KEY = (
    "This value was submitted in a deprecated key and may conflict with the value provided by the "
    "job definition's resource requirements."
)
#: Members that a job takes from its definition unless SubmitJob sets them.
_DEFINITION_MEMBERS = (
    "consumableResourceProperties",
    "timeout",
    "retryStrategy",
)


def submit(state: EndpointState, request: Document) -> Document:
    size = job_definitions.request_bytes(request)
    if size > limits.MAX_REQUEST_BYTES:
        raise RequestExecutionError(
            f"Job size must be less than {limits.MAX_REQUEST_BYTES // 1024} KiB, "
            f"got {-(-size // 1024)} KiB"
        )
    document = _make_document(state, request)
    job = to_job(document)
    try:
        state.scheduler.check(job)
    except InvalidJobError as exc:
        raise RequestExecutionError(str(exc)) from None
    number = next(state.job_numbers)
    counts = tuple(job.size if status is JobState.PENDING else 0 for status in JobState)
    row = JobRow(
        number, job.id, job.id, job.size, JobState.PENDING, "", counts, 0, document["createdAt"]
    )
    state.put(JOB, job.id, document)
    state.save(new_job=row)
    changes = state.scheduler.submit(job)
    state.add_job(job, document, row)
    state.loop.perform(changes)
    return {"jobArn": document["jobArn"], "jobName": job.name, "jobId": job.id}


# -- the scheduler's job --------------------------------------------------------------------------


def to_job(document: Document) -> Job:
    """Return the job that the scheduler places."""
    resources = document["_resources"]
    retry = document.get("retryStrategy", {})
    return Job(
        id=document["jobId"],
        name=document["jobName"],
        queue=document["jobQueue"],
        resources=Resources(resources["vcpus"], resources["memory_mib"], resources["gpus"]),
        array_size=document.get("arrayProperties", {}).get("size"),
        depends_on=tuple(
            _to_dependency(entry, is_array="arrayProperties" in document)
            for entry in document.get("dependsOn", [])
        ),
        retry=RetryStrategy(
            retry.get("attempts", 1), tuple(map(_retry_rule, retry.get("evaluateOnExit", [])))
        ),
        timeout_s=document.get("timeout", {}).get("attemptDurationSeconds"),
        share=document.get("shareIdentifier", ""),
        priority=document.get("schedulingPriority", 0),
        consumables=tuple(
            (_consumable_arn(document, entry["consumableResource"]), entry["quantity"])
            for entry in consumables_of(document)
        ),
    )


def _consumable_arn(document: Document, name_or_arn: str) -> str:
    region = names.region_of(document["jobArn"])
    return names.batch_arn(region, CONSUMABLE, names.strip_arn(name_or_arn))


def _to_dependency(entry: Document, *, is_array: bool) -> Dependency:
    job_id, kind = entry.get("jobId"), DependencyType(entry.get("type"))
    # AWS documents SEQUENTIAL for arrays only. Clients also send it with the job before a single
    # job, where it can mean nothing but that job.
    if kind is DependencyType.SEQUENTIAL and job_id is not None and not is_array:
        kind = DependencyType.WHOLE
    return Dependency(job_id, kind)


def consumables_of(document: Document) -> list[Document]:
    """Return the consumable resources that each child of a job takes."""
    properties = document.get("consumableResourceProperties", {})
    entries: list[Document] = properties.get("consumableResourceList", [])
    return entries


def _retry_rule(entry: Document) -> EvaluateOnExit:
    return EvaluateOnExit(
        Action(entry["action"].lower()),
        entry.get("onStatusReason"),
        entry.get("onReason"),
        entry.get("onExitCode"),
    )


# -- the document ---------------------------------------------------------------------------------


def _make_document(state: EndpointState, request: Document) -> Document:
    """Check a request and return the document of its job. Raises InvalidRequestError."""
    name = names.require_name("jobName", request["jobName"])
    queue = state.require(QUEUE, request["jobQueue"])
    if queue["state"] != "ENABLED":
        raise RequestExecutionError(
            f"Cannot submit job to job queue {queue['jobQueueName']}: it is DISABLED"
        )
    definition = job_definitions.find_active(state, request["jobDefinition"])
    _check_kind(queue, definition, request)
    _check_dependencies(state, request.get("dependsOn", []))
    overrides = _read_overrides(definition, request)
    container = _merge_overrides(definition, overrides)
    is_fargate = job_definitions.is_fargate(definition)
    check_container(container, is_fargate=is_fargate)
    resources = requested_resources(container, is_fargate=is_fargate)
    job_id = str(uuid.uuid4())
    document: Document = {
        "jobArn": state.arn(JOB, job_id),
        "jobName": name,
        "jobId": job_id,
        "jobQueue": queue["jobQueueArn"],
        "jobDefinition": definition["jobDefinitionArn"],
        "createdAt": state.now_ms(),
        "dependsOn": request.get("dependsOn", []),
        "parameters": {**definition.get("parameters", {}), **request.get("parameters", {})},
        "container": container,
        "eksAttempts": [],
        "_resources": {
            "vcpus": resources.vcpus,
            "memory_mib": resources.memory_mib,
            "gpus": resources.gpus,
        },
        "_definition": definition["jobDefinitionName"],
        "_overrides_length": validation.overrides_length(overrides),
    }
    if "ecsProperties" in definition:
        document["_task"] = definition["ecsProperties"]["taskProperties"][0]
    _add_definition_members(state, document, definition, request)
    _add_tags(document, definition, request)
    _add_share(document, queue, definition, request)
    _check_share_count(state, document)
    _add_array_size(document, request)
    return document


def _check_kind(queue: Document, definition: Document, request: Document) -> None:
    for member in ("nodeOverrides", "eksPropertiesOverride"):
        if member in request:
            raise RequestExecutionError(
                f"{member} does not apply to a job definition of one container"
            )
    if job_definitions.is_fargate(definition) != (queue["jobQueueType"] == "ECS_FARGATE"):
        raise RequestExecutionError(
            "the job definition's platformCapabilities and the queue's environments do not match"
        )


def _check_dependencies(state: EndpointState, entries: list[Document]) -> None:
    if len(entries) > limits.MAX_DEPENDENCIES:
        raise RequestExecutionError(
            f"Job cannot have more than {limits.MAX_DEPENDENCIES} dependencies"
        )
    for entry in entries:
        if "jobId" not in entry and entry.get("type") != "SEQUENTIAL":
            raise RequestExecutionError(
                "dependsOn: jobId must be provided unless type is SEQUENTIAL"
            )
        parent, index = names.split_child_id(entry.get("jobId", ""))
        # The engine also knows the jobs of other regions.
        if index == -1 or (parent and state.get(JOB, parent) is None):
            raise RequestExecutionError(f"no job has the id {entry['jobId']}")


def _add_definition_members(
    state: EndpointState, document: Document, definition: Document, request: Document
) -> None:
    document["platformCapabilities"] = definition.get("platformCapabilities", [])
    document["propagateTags"] = request.get("propagateTags", definition.get("propagateTags", False))
    for member in _DEFINITION_MEMBERS:
        value = request.get(member, definition.get(member))
        if value is not None:
            document[member] = value
    if "consumableResourcePropertiesOverride" in request:
        document["consumableResourceProperties"] = request["consumableResourcePropertiesOverride"]
    job_definitions.check_consumables(state, document.get("consumableResourceProperties", {}))
    retry = document.get("retryStrategy", {"attempts": 1})
    document["retryStrategy"] = job_definitions.normalize_retry(retry)
    raise_first(validation.timeout_problems(document.get("timeout", {})))


def _add_tags(document: Document, definition: Document, request: Document) -> None:
    document["tags"] = {**definition["tags"], **request.get("tags", {})}
    if document.get("propagateTags") and len(document["tags"]) > limits.MAX_TAGS:
        document["_refused"] = (
            "there are more than 50 tags, the job's and its definition's together"
        )


def _add_share(
    document: Document, queue: Document, definition: Document, request: Document
) -> None:
    has_policy = "schedulingPolicyArn" in queue
    share = request.get("shareIdentifier")
    if has_policy and not share:
        raise RequestExecutionError(
            "shareIdentifier must be provided: the job queue has a scheduling policy"
        )
    if not has_policy and share is not None:
        raise RequestExecutionError(
            "shareIdentifier must not be provided: the job queue has no scheduling policy"
        )
    raise_first(validation.share_problems(request))
    if share is not None:
        document["shareIdentifier"] = share
    raise_first(validation.priority_problems("schedulingPriorityOverride", request))
    priority = request.get("schedulingPriorityOverride", definition.get("schedulingPriority"))
    if priority is not None:
        # A queue without a scheduling policy ignores the priority, but DescribeJobs shows it.
        document["schedulingPriority"] = priority


def _check_share_count(state: EndpointState, document: Document) -> None:
    """Raise RequestExecutionError if the queue would have too many active share identifiers."""
    new_share = document.get("shareIdentifier")
    if new_share is None:
        return
    active_shares: set[str] = {new_share}
    for job in reversed(state.documents(JOB)):
        share = job.get("shareIdentifier")
        if job["jobQueue"] != document["jobQueue"] or share is None:
            continue
        if not state.scheduler.summary(job["jobId"]).state.is_terminal:
            if share == new_share:
                return
            active_shares.add(share)
    if len(active_shares) > _MAX_SHARES:
        raise RequestExecutionError(
            f"the job queue has {_MAX_SHARES} active share identifiers, which is the most"
        )


def _add_array_size(document: Document, request: Document) -> None:
    size = request.get("arrayProperties", {}).get("size")
    if size is None:
        return
    if size not in limits.ARRAY_SIZES:
        raise RequestExecutionError(f"arrayProperties.size must be between 2 and 10000; got {size}")
    document["arrayProperties"] = {"size": size}


# -- overrides ------------------------------------------------------------------------------------


def _read_overrides(definition: Document, request: Document) -> Document:
    """Return the overrides of the one container, from the member that fits the definition."""
    if "ecsProperties" in definition:
        return _read_ecs_overrides(definition, request)
    if request.get("ecsPropertiesOverride"):
        raise RequestExecutionError(
            "ecsPropertiesOverride does not apply to containerProperties; use containerOverrides"
        )
    overrides: Document = request.get("containerOverrides", {})
    return overrides


def _read_ecs_overrides(definition: Document, request: Document) -> Document:
    if request.get("containerOverrides"):
        raise RequestExecutionError(
            "containerOverrides does not apply to ecsProperties; use ecsPropertiesOverride"
        )
    name = definition["ecsProperties"]["taskProperties"][0]["containers"][0].get("name")
    tasks = request.get("ecsPropertiesOverride", {}).get("taskProperties", [])
    containers = [container for task in tasks for container in task.get("containers", [])]
    if len(containers) > 1 or any(container.get("name", name) != name for container in containers):
        raise RequestExecutionError(
            f"ecsPropertiesOverride: the job definition has one container, named {name!r}"
        )
    return {
        key: value for container in containers for key, value in container.items() if key != "name"
    }


def _merge_overrides(definition: Document, overrides: Document) -> Document:
    """Return the container of a job (facts, 5.2).

    A command replaces that of the definition; variables merge by name, requirements by type.
    """
    container: Document = dict(container_of(definition))
    if "instanceType" in overrides:
        raise RequestExecutionError(
            "containerOverrides.instanceType is only for multi-node parallel jobs"
        )
    if "command" in overrides:
        raise_first(validation.command_problems(overrides["command"]))
        container["command"] = overrides["command"]
    if "environment" in overrides:
        raise_first(validation.environment_problems(overrides["environment"]))
        container["environment"] = _merge_entries(
            container.get("environment", []), overrides["environment"], "name"
        )
    _merge_requirements(container, overrides)
    return aws_shapes.complete_container(container)


def _merge_requirements(container: Document, overrides: Document) -> None:
    requirements = container.get("resourceRequirements", [])
    for deprecated, kind in (("vcpus", "VCPU"), ("memory", "MEMORY")):
        if deprecated in overrides:
            if any(requirement["type"] == kind for requirement in requirements):
                raise RequestExecutionError(_DEPRECATED_KEY)
            container[deprecated] = overrides[deprecated]
    if "resourceRequirements" in overrides:
        container["resourceRequirements"] = _merge_entries(
            requirements, overrides["resourceRequirements"], "type"
        )


def _merge_entries(old: list[Document], new: list[Document], key: str) -> list[Document]:
    merged: dict[Any, Document] = {entry.get(key): entry for entry in old}
    merged.update((entry.get(key), entry) for entry in new)
    return list(merged.values())
