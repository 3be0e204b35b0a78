"""Jobs: SubmitJob, CancelJob, TerminateJob (facts, 1.6, 1.7, 2 and 5), and how a job comes back after a restart.

A job's document is what DescribeJobs answers about it, as far as that does not change. Members that begin with an
underscore are ours and never leave the endpoint.
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
from batchyard.emulator import job_definitions as definitions
from batchyard.emulator import job_queues, names
from batchyard.emulator.api_errors import InvalidSubmissionError
from batchyard.emulator.state import JOB, STOP, Document, EndpointState

_MOST_REASON = 1024
_MOST_BULK = 50
_MOST_SHARES = 500
_DEPRECATED = (
    "This value was submitted in a deprecated key and may conflict with the value provided by the job definition's "
    "resource requirements."
)
#: members of a job that its definition gives unless SubmitJob does
_FROM_DEFINITION = (
    "platformCapabilities",
    "propagateTags",
    "consumableResourceProperties",
    "timeout",
    "retryStrategy",
)


def submit(yard: EndpointState, request: Document) -> Document:
    size = definitions.size_of(request)
    if size > limits.MAX_REQUEST_BYTES:
        raise InvalidSubmissionError(
            f"Job size must be less than 30 KiB, got {-(-size // 1024)} KiB"
        )
    document = _document(yard, request)
    job = core(document)
    try:
        yard.scheduler.check(job)
    except InvalidJobError as exc:
        raise InvalidSubmissionError(str(exc)) from None
    number = len(yard.all(JOB))
    counts = tuple(job.size if state is JobState.PENDING else 0 for state in JobState)
    row = JobRow(
        number, job.id, job.id, job.size, JobState.PENDING, "", counts, 0, document["createdAt"]
    )
    yard.keep(JOB, job.id, document)
    yard.save(new_job=row)
    changes = yard.scheduler.submit(job)
    yard.enter(job, document, row)
    yard.loop.perform(changes)
    return {"jobArn": document["jobArn"], "jobName": job.name, "jobId": job.id}


def cancel(yard: EndpointState, request: Document) -> Document:
    _end(yard, request["jobId"], _checked_reason(request), "cancel")
    return {}


def terminate(yard: EndpointState, request: Document) -> Document:
    _end(yard, request["jobId"], _checked_reason(request), "terminate")
    return {}


def cancel_all(yard: EndpointState, request: Document) -> Document:
    return _end_all(yard, request, "cancel")


def terminate_all(yard: EndpointState, request: Document) -> Document:
    return _end_all(yard, request, "terminate")


def core(document: Document) -> Job:
    """The scheduler's view of a job."""
    resources = document["_resources"]
    retry = document.get("retryStrategy", {})
    held = document.get("consumableResourceProperties", {}).get("consumableResourceList", [])
    return Job(
        id=document["jobId"],
        name=document["jobName"],
        queue=names.bare(document["jobQueue"]),
        resources=Resources(resources["vcpus"], resources["memory_mib"], resources["gpus"]),
        array_size=document.get("arrayProperties", {}).get("size"),
        depends_on=tuple(
            Dependency(entry.get("jobId"), DependencyType(entry.get("type")))
            for entry in document.get("dependsOn", [])
        ),
        retry=RetryStrategy(
            retry.get("attempts", 1), tuple(map(_rule, retry.get("evaluateOnExit", [])))
        ),
        timeout_s=document.get("timeout", {}).get("attemptDurationSeconds"),
        share=document.get("shareIdentifier", ""),
        priority=document.get("schedulingPriority", 0),
        consumables=tuple(
            (names.bare(entry["consumableResource"]), entry["quantity"]) for entry in held
        ),
    )


def stop_again(yard: EndpointState, job_id: str, wanted: Document) -> None:
    """After a restart: carries out what was asked for before it."""
    for verb in ("cancel", "terminate"):
        for index, reason in wanted.get(verb, {}).items():
            _carry_out(yard, job_id, int(index) if index else None, reason, verb)


# -- ending -----------------------------------------------------------------------------------------------------


def _end(yard: EndpointState, job_id: str, reason: str, verb: str) -> None:
    parent, index = names.split_child(job_id)
    document = yard.get(JOB, parent)
    if document is None or (index is not None and index not in range(core(document).size)):
        return  # facts, 1.6: nobody is told
    if index is not None and "arrayProperties" not in document:
        return
    summary = yard.scheduler.summary(parent)
    state = summary.state if index is None else yard.scheduler.child_state(parent, index)
    if state.is_terminal or (verb == "cancel" and state in (JobState.STARTING, JobState.RUNNING)):
        return
    wanted = yard.get(STOP, parent) or {}
    reasons: dict[str, str] = {**wanted.get(verb, {})}
    reasons.setdefault("" if index is None else str(index), reason)
    yard.keep(STOP, parent, {**wanted, verb: reasons})
    yard.save()
    _carry_out(yard, parent, index, reason, verb)


def _carry_out(yard: EndpointState, job_id: str, index: int | None, reason: str, verb: str) -> None:
    act = yard.scheduler.cancel if verb == "cancel" else yard.scheduler.terminate
    yard.loop.perform(act(job_id, reason, index))


def _end_all(yard: EndpointState, request: Document, verb: str) -> Document:
    ids: list[str] = request["jobs"]
    if not 1 <= len(ids) <= _MOST_BULK:
        raise InvalidSubmissionError(f"there must be 1 to {_MOST_BULK} jobs; got {len(ids)}")
    reason = _checked_reason(request)
    for job_id in ids:
        _end(yard, job_id, reason, verb)
    return {"successful": ids, "errors": []}


def _checked_reason(request: Document) -> str:
    reason: str = request["reason"]
    if not 1 <= len(reason) <= _MOST_REASON:
        raise InvalidSubmissionError(
            f"reason must have 1 to {_MOST_REASON} characters; got {len(reason)}"
        )
    return reason


# -- submitting -------------------------------------------------------------------------------------------------


def _document(yard: EndpointState, request: Document) -> Document:
    name = names.require_name("jobName", request["jobName"])
    queue = job_queues.existing(yard, request["jobQueue"])
    if queue["state"] != "ENABLED":
        raise InvalidSubmissionError(
            f"Cannot submit job to job queue {queue['jobQueueName']}: it is DISABLED"
        )
    definition = definitions.active(yard, request["jobDefinition"])
    for member in ("nodeOverrides", "eksPropertiesOverride"):
        if member in request:
            raise InvalidSubmissionError(
                f"{member} does not apply to a job definition of one container"
            )
    is_fargate = definition["platformCapabilities"] == ["FARGATE"]
    if is_fargate != (queue["jobQueueType"] == "ECS_FARGATE"):
        raise InvalidSubmissionError(
            "the job definition's platformCapabilities and the queue's environments do not match"
        )
    _check_dependencies(request.get("dependsOn", []))
    overrides = _overrides(definition, request)
    container = _merged(definition, overrides)
    definitions.check_container(container, is_fargate=is_fargate)
    resources = definitions.resources_of(container, is_fargate=is_fargate)
    job_id = str(uuid.uuid4())
    document: Document = {
        "jobArn": yard.arn(JOB, job_id),
        "jobName": name,
        "jobId": job_id,
        "jobQueue": queue["jobQueueArn"],
        "jobDefinition": definition["jobDefinitionArn"],
        "createdAt": yard.now_ms(),
        "dependsOn": request.get("dependsOn", []),
        "parameters": {**definition.get("parameters", {}), **request.get("parameters", {})},
        "container": container,
        "_resources": {
            "vcpus": resources.vcpus,
            "memory_mib": resources.memory_mib,
            "gpus": resources.gpus,
        },
        "_definition": definition["jobDefinitionName"],
        "_overrides_length": validation.overrides_length(overrides),
    }
    for member in _FROM_DEFINITION:
        value = request.get(member, definition.get(member))
        if value is not None:
            document[member] = value
    if "consumableResourcePropertiesOverride" in request:
        document["consumableResourceProperties"] = request["consumableResourcePropertiesOverride"]
    definitions.check_consumables(yard, document.get("consumableResourceProperties", {}))
    document["retryStrategy"] = definitions.checked_retry(
        document.get("retryStrategy", {"attempts": 1})
    )
    definitions.refuse(validation.timeout_problems(document.get("timeout", {})))
    _add_tags(document, definition, request)
    _add_share(document, queue, definition, request)
    _check_shares(yard, document)
    if "arrayProperties" in request and "size" in request["arrayProperties"]:
        array_size = request["arrayProperties"]["size"]
        if array_size not in limits.ARRAY_SIZES:
            raise InvalidSubmissionError(
                f"arrayProperties.size must be between 2 and 10000; got {array_size}"
            )
        document["arrayProperties"] = {"size": array_size}
    return document


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
        raise InvalidSubmissionError(
            "shareIdentifier must be provided: the job queue has a scheduling policy"
        )
    if not has_policy and share is not None:
        raise InvalidSubmissionError(
            "shareIdentifier must not be provided: the job queue has no scheduling policy"
        )
    definitions.refuse(validation.share_problems(request))
    if share is not None:
        document["shareIdentifier"] = share
    definitions.refuse(validation.priority_problems("schedulingPriorityOverride", request))
    priority = request.get("schedulingPriorityOverride", definition.get("schedulingPriority"))
    if priority is not None:
        # In a queue without a policy it is kept, and changes nothing.
        document["schedulingPriority"] = priority


def _check_shares(yard: EndpointState, document: Document) -> None:
    """facts, 6: at most 500 shares of a queue may be active."""
    if "shareIdentifier" not in document:
        return
    active: set[str] = {document["shareIdentifier"]}
    for job in reversed(yard.all(JOB)):
        share = job.get("shareIdentifier")
        if job["jobQueue"] != document["jobQueue"] or share is None:
            continue
        if not yard.scheduler.summary(job["jobId"]).state.is_terminal:
            if share == document["shareIdentifier"]:
                return
            active.add(share)
    if len(active) > _MOST_SHARES:
        raise InvalidSubmissionError(
            f"the job queue has {_MOST_SHARES} active share identifiers, which is the most"
        )


def _check_dependencies(entries: list[Document]) -> None:
    if len(entries) > limits.MAX_DEPENDENCIES:
        raise InvalidSubmissionError(
            f"Job cannot have more than {limits.MAX_DEPENDENCIES} dependencies"
        )
    for entry in entries:
        if "jobId" not in entry and entry.get("type") != "SEQUENTIAL":
            raise InvalidSubmissionError(
                "dependsOn: jobId must be provided unless type is SEQUENTIAL"
            )
        if names.split_child(entry.get("jobId", ""))[1] == -1:
            raise InvalidSubmissionError(f"no job has the id {entry['jobId']}")


def _overrides(definition: Document, request: Document) -> Document:
    """containerOverrides, or what ecsPropertiesOverride says about the one container."""
    is_ecs = "ecsProperties" in definition
    if is_ecs and request.get("containerOverrides"):
        raise InvalidSubmissionError(
            "containerOverrides does not apply to ecsProperties; use ecsPropertiesOverride"
        )
    if not is_ecs and request.get("ecsPropertiesOverride"):
        raise InvalidSubmissionError(
            "ecsPropertiesOverride does not apply to containerProperties; use containerOverrides"
        )
    if not is_ecs:
        overrides: Document = request.get("containerOverrides", {})
        return overrides
    name = definition["ecsProperties"]["taskProperties"][0]["containers"][0].get("name")
    tasks = request.get("ecsPropertiesOverride", {}).get("taskProperties", [])
    containers = [container for task in tasks for container in task.get("containers", [])]
    if len(containers) > 1 or any(container.get("name", name) != name for container in containers):
        raise InvalidSubmissionError(
            f"ecsPropertiesOverride: the job definition has one container, named {name!r}"
        )
    return {
        key: value for container in containers for key, value in container.items() if key != "name"
    }


def _merged(definition: Document, overrides: Document) -> Document:
    """facts, 5.2: a command replaces, variables merge by name, requirements by type."""
    container: Document = dict(definitions.container_of(definition))
    if "instanceType" in overrides:
        raise InvalidSubmissionError(
            "containerOverrides.instanceType is only for multi-node parallel jobs"
        )
    if "command" in overrides:
        definitions.refuse(validation.command_problems(overrides["command"]))
        container["command"] = overrides["command"]
    if "environment" in overrides:
        definitions.refuse(validation.environment_problems(overrides["environment"]))
        container["environment"] = _merge(
            container.get("environment", []), overrides["environment"], "name"
        )
    requirements = container.get("resourceRequirements", [])
    for old, new in (("vcpus", "VCPU"), ("memory", "MEMORY")):
        if old in overrides:
            if any(requirement["type"] == new for requirement in requirements):
                raise InvalidSubmissionError(_DEPRECATED)
            container[old] = overrides[old]
    if "resourceRequirements" in overrides:
        container["resourceRequirements"] = _merge(
            requirements, overrides["resourceRequirements"], "type"
        )
    for member in (
        "command",
        "environment",
        "mountPoints",
        "volumes",
        "ulimits",
        "resourceRequirements",
        "secrets",
    ):
        container.setdefault(member, [])
    return container


def _merge(old: list[Document], new: list[Document], key: str) -> list[Document]:
    merged: dict[Any, Document] = {entry.get(key): entry for entry in old}
    merged.update((entry.get(key), entry) for entry in new)
    return list(merged.values())


def _rule(entry: Document) -> EvaluateOnExit:
    return EvaluateOnExit(
        Action(entry["action"].lower()),
        entry.get("onStatusReason"),
        entry.get("onReason"),
        entry.get("onExitCode"),
    )
