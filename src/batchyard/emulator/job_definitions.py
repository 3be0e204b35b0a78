"""Job definitions (facts, 5): their operations, and checks that SubmitJob shares with them."""

from __future__ import annotations

import json

from batchyard.batch import limits, validation
from batchyard.emulator import aws_shapes, names
from batchyard.emulator.api_errors import (
    InvalidRequestError,
    RequestExecutionError,
    raise_first,
)
from batchyard.emulator.containers import check_container, container_of
from batchyard.emulator.paging import MAX_RESULTS, page_answer
from batchyard.emulator.state import CONSUMABLE, DEFINITION, Document, EndpointState


def register(state: EndpointState, request: Document) -> Document:
    name = names.require_name("jobDefinitionName", request["jobDefinitionName"])
    size = request_bytes(request)
    if size > limits.MAX_DEFINITION_BYTES:
        raise RequestExecutionError(
            f"Job definition size must be less than {limits.MAX_DEFINITION_BYTES // 1024} KiB, "
            f"got {-(-size // 1024)} KiB"
        )
    _check_kind(request)
    check_container(container_of(request), is_fargate=is_fargate(request))
    if "retryStrategy" in request:
        request["retryStrategy"] = normalize_retry(request["retryStrategy"])
    raise_first(validation.timeout_problems(request.get("timeout", {})))
    raise_first(validation.priority_problems("schedulingPriority", request))
    check_consumables(state, request.get("consumableResourceProperties", {}))
    revision = 1 + max((d["revision"] for d in _revisions(state, name)), default=0)
    document: Document = {
        **{key: value for key, value in request.items() if key != "tags"},
        "jobDefinitionArn": state.arn(DEFINITION, f"{name}:{revision}"),
        "revision": revision,
        "status": "ACTIVE",
        "tags": request.get("tags", {}),
        "containerOrchestrationType": "ECS",
    }
    document.setdefault("parameters", {})
    if "containerProperties" in request:
        document["containerProperties"] = aws_shapes.complete_container(
            request["containerProperties"]
        )
    if "ecsProperties" in request:
        tasks = request["ecsProperties"]["taskProperties"]
        document["ecsProperties"] = {
            "taskProperties": [aws_shapes.complete_task(task) for task in tasks]
        }
    state.put(DEFINITION, f"{name}:{revision}", document)
    state.save()
    return {
        "jobDefinitionName": name,
        "jobDefinitionArn": document["jobDefinitionArn"],
        "revision": revision,
    }


def _check_kind(request: Document) -> None:
    if request["type"] != "container":
        raise InvalidRequestError(
            "this endpoint runs jobs of one container; multinode job definitions are not for it"
        )
    if len(request.get("platformCapabilities", ["EC2"])) != 1:
        raise RequestExecutionError("Exactly 1 capability must be provided.")
    if "eksProperties" in request:
        raise InvalidRequestError(
            "this endpoint runs jobs on ECS-type compute; eksProperties is not for it"
        )
    if "MANAGED_INSTANCES" in request.get("platformCapabilities", []):
        raise InvalidRequestError(
            "this endpoint has EC2 and Fargate; MANAGED_INSTANCES is not for it"
        )


def is_fargate(document: Document) -> bool:
    """Return whether a job definition, or a job, is for Fargate."""
    return document.get("platformCapabilities") == ["FARGATE"]


def deregister(state: EndpointState, request: Document) -> Document:
    name = names.strip_arn(request["jobDefinition"])
    document = state.get(DEFINITION, request["jobDefinition"])
    if document is None:
        if ":" not in name:
            raise InvalidRequestError(
                f"{request['jobDefinition']}: a revision must be named, as in {name}:1"
            )
        return {}
    state.put(DEFINITION, name, {**document, "status": "INACTIVE"})
    state.save()
    return {}


def describe(state: EndpointState, request: Document) -> Document:
    definitions = sorted(
        state.documents(DEFINITION), key=lambda d: (d["jobDefinitionName"], -d["revision"])
    )
    requested = request.get("jobDefinitions")
    if requested:
        if len(requested) > MAX_RESULTS:
            raise InvalidRequestError("Maximum number of job definitions supported is 100.")
        definitions = _select(state, definitions, requested)
    if "jobDefinitionName" in request:
        definitions = _select(state, definitions, [request["jobDefinitionName"]])
    if "status" in request:
        definitions = [d for d in definitions if d["status"] == request["status"]]
    return page_answer("jobDefinitions", definitions, request)


def _select(
    state: EndpointState, definitions: list[Document], names_or_arns: list[str]
) -> list[Document]:
    """Return the definitions that are named with or without their revision."""
    requested = {state.name_of(DEFINITION, name) for name in names_or_arns}
    return [
        definition
        for definition in definitions
        if definition["jobDefinitionName"] in requested
        or f"{definition['jobDefinitionName']}:{definition['revision']}" in requested
    ]


def _revisions(state: EndpointState, name: str) -> list[Document]:
    return [d for d in state.documents(DEFINITION) if d["jobDefinitionName"] == name]


def find_active(state: EndpointState, name_or_arn: str) -> Document:
    """Return the definition of a SubmitJob: the named revision, or the newest ACTIVE one.

    Raises InvalidRequestError if it does not exist or is not ACTIVE.
    """
    name = state.name_of(DEFINITION, name_or_arn) or ""
    revision = state.get(DEFINITION, name) if ":" in name else None
    revisions = _revisions(state, name) if revision is None else [revision]
    candidates = [d for d in revisions if d["status"] == "ACTIVE"]
    if not candidates:
        raise InvalidRequestError(
            f"JobDefinition name {name_or_arn} does not exist or is not in ACTIVE status"
        )
    return max(candidates, key=lambda d: int(d["revision"]))


# -- checks that SubmitJob shares -----------------------------------------------------------------


def request_bytes(request: Document) -> int:
    """Return the size of a request as clients send it."""
    return len(json.dumps(request, separators=(",", ":"), ensure_ascii=False).encode())


def normalize_retry(strategy: Document) -> Document:
    """Check a retry strategy (facts, 1.3 and 1.4); return it with actions in lower case."""
    if "attempts" not in strategy:
        raise RequestExecutionError("RetryAttempts must be provided with retry strategy")
    raise_first(validation.retry_problems(strategy))
    rules = strategy.get("evaluateOnExit", [])
    return {
        **strategy,
        "evaluateOnExit": [{**rule, "action": rule["action"].lower()} for rule in rules],
    }


def check_tags(tags: dict[str, str]) -> None:
    raise_first(validation.tag_problems(tags))


def check_consumables(state: EndpointState, properties: Document) -> None:
    raise_first(validation.consumable_problems(properties))
    for entry in properties.get("consumableResourceList", []):
        if state.get(CONSUMABLE, entry.get("consumableResource", "")) is None:
            raise RequestExecutionError(
                f"consumable resource {entry.get('consumableResource')!r} does not exist"
            )
