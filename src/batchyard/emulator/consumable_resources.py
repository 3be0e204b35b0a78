"""Consumable resources (facts, 7.3): their operations. The scheduler counts what is free."""

from __future__ import annotations

from batchyard.emulator import names
from batchyard.emulator.api_errors import InvalidRequestError
from batchyard.emulator.job_lists import matches_prefix
from batchyard.emulator.job_submission import consumables_of
from batchyard.emulator.paging import page_answer
from batchyard.emulator.state import CONSUMABLE, JOB, Document, EndpointState

_TYPES = ("REPLENISHABLE", "NON_REPLENISHABLE")
_UPDATE_OPERATIONS = ("SET", "ADD", "REMOVE")
_SUMMARY_MEMBERS = (
    "consumableResourceArn",
    "consumableResourceName",
    "totalQuantity",
    "resourceType",
)


def create(state: EndpointState, request: Document) -> Document:
    name = names.require_name("consumableResourceName", request["consumableResourceName"])
    state.require_new(CONSUMABLE, name)
    resource_type = request.get("resourceType", "REPLENISHABLE")
    if resource_type not in _TYPES:
        raise InvalidRequestError(
            f"resourceType must be one of {', '.join(_TYPES)}; got {resource_type!r}"
        )
    total = request.get("totalQuantity", 0)
    if total < 0:
        raise InvalidRequestError("totalQuantity must not be negative")
    document = {
        "consumableResourceName": name,
        "consumableResourceArn": state.arn(CONSUMABLE, name),
        "totalQuantity": total,
        "resourceType": resource_type,
        "createdAt": state.now_ms(),
        "tags": request.get("tags", {}),
    }
    state.put(CONSUMABLE, name, document)
    state.save()
    add_to_scheduler(state, document)
    members = ("consumableResourceName", "consumableResourceArn")
    return {member: document[member] for member in members}


def add_to_scheduler(state: EndpointState, document: Document) -> None:
    """Give the scheduler what is left of a resource that it does not know yet."""
    free = document["totalQuantity"] - _used_up(state, document)
    _change_free(state, document, free)


def _change_free(state: EndpointState, document: Document, difference: int) -> None:
    state.scheduler.change_consumable(
        document["consumableResourceArn"],
        difference,
        is_replenishable=_is_replenishable(document),
    )


def _is_replenishable(document: Document) -> bool:
    return bool(document["resourceType"] == "REPLENISHABLE")


def _used_up(state: EndpointState, document: Document) -> int:
    """Return how much of a resource that is not replenishable ended attempts have taken."""
    if _is_replenishable(document):
        return 0
    name, created_ms = document["consumableResourceName"], document["createdAt"]
    rows = {row.id: row for row in state.store.jobs()}
    jobs = [job for job in state.documents(JOB) if job["createdAt"] >= created_ms]
    return sum(_quantity(job, name) * rows[job["jobId"]].attempts for job in jobs)


def _quantity(job: Document, name: str) -> int:
    """Return how much of a resource a job, or each of its children, takes."""
    return sum(
        entry["quantity"]
        for entry in consumables_of(job)
        if names.strip_arn(entry["consumableResource"]) == name
    )


def update(state: EndpointState, request: Document) -> Document:
    document = state.require(CONSUMABLE, request["consumableResource"])
    token = request.get("clientToken")
    if token is not None and token == document.get("clientToken"):
        return _update_answer(document)
    total = document["totalQuantity"]
    new_total = _updated_total(total, request)
    document = {**document, "totalQuantity": new_total, "clientToken": token}
    state.put(CONSUMABLE, document["consumableResourceName"], document)
    state.save()
    _change_free(state, document, new_total - total)
    return _update_answer(document)


def _updated_total(total: int, request: Document) -> int:
    if "quantity" not in request:
        raise InvalidRequestError("quantity must be provided")
    quantity: int = request["quantity"]
    operation = request.get("operation", "SET")
    if operation not in _UPDATE_OPERATIONS:
        raise InvalidRequestError(f"operation must be SET, ADD or REMOVE; got {operation!r}")
    if quantity < 0:
        raise InvalidRequestError("quantity must not be negative")
    new_total = {"SET": quantity, "ADD": total + quantity, "REMOVE": total - quantity}[operation]
    if new_total < 0:
        raise InvalidRequestError(f"there are only {total} of it, and {quantity} cannot be removed")
    return new_total


def _update_answer(document: Document) -> Document:
    members = ("consumableResourceName", "consumableResourceArn", "totalQuantity")
    return {member: document[member] for member in members}


def delete(state: EndpointState, request: Document) -> Document:
    document = state.get(CONSUMABLE, request["consumableResource"])
    if document is None:
        return {}
    state.remove(CONSUMABLE, document["consumableResourceName"])
    state.save()
    # Running attempts return what they hold of a replenishable resource. Nothing returns what was
    # used up of the other kind, so only what is free is removed.
    if _is_replenishable(document):
        removed = document["totalQuantity"]
    else:
        removed = state.scheduler.free_consumable(document["consumableResourceArn"])
    _change_free(state, document, -removed)
    return {}


def describe(state: EndpointState, request: Document) -> Document:
    document = state.require(CONSUMABLE, request["consumableResource"])
    free = state.scheduler.free_consumable(document["consumableResourceArn"])
    members = {key: value for key, value in document.items() if key != "clientToken"}
    return {
        **members,
        "availableQuantity": max(0, free),
        "inUseQuantity": document["totalQuantity"] - free,
    }


def list_resources(state: EndpointState, request: Document) -> Document:
    documents = state.documents(CONSUMABLE)
    for entry in request.get("filters", []):
        if entry.get("name") != "CONSUMABLE_RESOURCE_NAME":
            raise InvalidRequestError(
                f"filters: name must be CONSUMABLE_RESOURCE_NAME; got {entry.get('name')!r}"
            )
        patterns = entry.get("values", [])
        documents = [
            document
            for document in documents
            if _matches_any(patterns, document["consumableResourceName"])
        ]
    summaries = [_summarize(state, document) for document in documents]
    return page_answer("consumableResources", summaries, request)


def _summarize(state: EndpointState, document: Document) -> Document:
    free = state.scheduler.free_consumable(document["consumableResourceArn"])
    in_use = document["totalQuantity"] - free
    return {member: document[member] for member in _SUMMARY_MEMBERS} | {"inUseQuantity": in_use}


# -- ListJobsByConsumableResource -----------------------------------------------------------------


def list_jobs(state: EndpointState, request: Document) -> Document:
    resource = state.require(CONSUMABLE, request["consumableResource"])
    filters = request.get("filters", [])
    for entry in filters:
        if entry.get("name") not in ("JOB_STATUS", "JOB_NAME"):
            raise InvalidRequestError(
                f"filters: name must be JOB_STATUS or JOB_NAME; got {entry.get('name')!r}"
            )
    summaries = []
    for job in reversed(state.documents(JOB)):
        quantity = _quantity(job, resource["consumableResourceName"])
        status = state.scheduler.summary(job["jobId"]).state.value
        if quantity and all(_passes(job["jobName"], status, entry) for entry in filters):
            summaries.append(_summarize_job(state, job, status, quantity))
    return page_answer("jobs", summaries, request)


def _summarize_job(state: EndpointState, job: Document, status: str, quantity: int) -> Document:
    summary = {
        "jobArn": job["jobArn"],
        "jobQueueArn": job["jobQueue"],
        "jobName": job["jobName"],
        "jobDefinitionArn": job["jobDefinition"],
        "jobStatus": status,
        "quantity": quantity,
        "createdAt": job["createdAt"],
        "consumableResourceProperties": job["consumableResourceProperties"],
    }
    if "shareIdentifier" in job:
        summary["shareIdentifier"] = job["shareIdentifier"]
    row = state.loop.row(job["jobId"])
    if row.started_ms is not None:
        summary["startedAt"] = row.started_ms
    if row.status_reason:
        summary["statusReason"] = row.status_reason
    return summary


def _passes(job_name: str, status: str, entry: Document) -> bool:
    values = entry.get("values", [])
    return status in values if entry["name"] == "JOB_STATUS" else _matches_any(values, job_name)


def _matches_any(patterns: list[str], name: str) -> bool:
    """Return whether a pattern matches; case is ignored, and a final * matches any text."""
    return any(matches_prefix(name.lower(), pattern.lower()) for pattern in patterns)
