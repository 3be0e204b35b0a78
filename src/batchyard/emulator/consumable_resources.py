"""Consumable resources (facts, 7.3): the operations. What is free of one is the scheduler's to know."""

from __future__ import annotations

from batchyard.emulator import names
from batchyard.emulator.api_errors import InvalidRequestError
from batchyard.emulator.paging import page, size_of_page
from batchyard.emulator.state import CONSUMABLE, JOB, Document, EndpointState

_TYPES = ("REPLENISHABLE", "NON_REPLENISHABLE")


def create(yard: EndpointState, request: Document) -> Document:
    name = names.require_name("consumableResourceName", request["consumableResourceName"])
    if yard.get(CONSUMABLE, name) is not None:
        raise InvalidRequestError("Object already exists")
    kind = request.get("resourceType", "REPLENISHABLE")
    if kind not in _TYPES:
        raise InvalidRequestError(f"resourceType must be one of {', '.join(_TYPES)}; got {kind!r}")
    total = request.get("totalQuantity", 0)
    if total < 0:
        raise InvalidRequestError("totalQuantity must not be negative")
    document = {
        "consumableResourceName": name,
        "consumableResourceArn": yard.arn(CONSUMABLE, name),
        "totalQuantity": total,
        "resourceType": kind,
        "createdAt": yard.now_ms(),
        "tags": request.get("tags", {}),
    }
    yard.keep(CONSUMABLE, name, document)
    yard.save()
    enter(yard, document)
    return {
        "consumableResourceName": name,
        "consumableResourceArn": document["consumableResourceArn"],
    }


def enter(yard: EndpointState, document: Document) -> None:
    """Tells the scheduler of it, as it is after a restart: without what has been used up."""
    name = document["consumableResourceName"]
    free = document["totalQuantity"] - _used_up(yard, document)
    yard.scheduler.change_consumable(name, free, is_replenishable=_is_given_back(document))


def _is_given_back(document: Document) -> bool:
    return bool(document["resourceType"] == "REPLENISHABLE")


def _used_up(yard: EndpointState, document: Document) -> int:
    """What attempts that are over have taken of one that is not given back."""
    if _is_given_back(document):
        return 0
    name, since_ms = document["consumableResourceName"], document["createdAt"]
    rows = {row.id: row for row in yard.store.jobs()}
    jobs = [job for job in yard.all(JOB) if job["createdAt"] >= since_ms]
    return sum(_quantity(job, name) * rows[job["jobId"]].attempts for job in jobs)


def _quantity(job: Document, name: str) -> int:
    """How much of it the job, or each of its children, takes."""
    held = job.get("consumableResourceProperties", {}).get("consumableResourceList", [])
    return sum(
        entry["quantity"] for entry in held if names.bare(entry["consumableResource"]) == name
    )


def update(yard: EndpointState, request: Document) -> Document:
    document = _existing(yard, request["consumableResource"])
    token = request.get("clientToken")
    if token is not None and token == document.get("clientToken"):
        return _answer(document)
    if "quantity" not in request:
        raise InvalidRequestError("quantity must be provided")
    quantity, total = request["quantity"], document["totalQuantity"]
    operation = request.get("operation", "SET")
    if operation not in ("SET", "ADD", "REMOVE"):
        raise InvalidRequestError(f"operation must be SET, ADD or REMOVE; got {operation!r}")
    if quantity < 0:
        raise InvalidRequestError("quantity must not be negative")
    wanted = {"SET": quantity, "ADD": total + quantity, "REMOVE": total - quantity}[operation]
    if wanted < 0:
        raise InvalidRequestError(f"there are only {total} of it, and {quantity} cannot be removed")
    document = {**document, "totalQuantity": wanted, "clientToken": token}
    name = document["consumableResourceName"]
    yard.keep(CONSUMABLE, name, document)
    yard.save()
    yard.scheduler.change_consumable(
        name, wanted - total, is_replenishable=_is_given_back(document)
    )
    return _answer(document)


def delete(yard: EndpointState, request: Document) -> Document:
    document = yard.get(CONSUMABLE, request["consumableResource"])
    if document is not None:
        name = document["consumableResourceName"]
        yard.forget(CONSUMABLE, name)
        yard.save()
        # What runs still gives back what it holds, but nobody gives back what has been used up.
        gone = (
            document["totalQuantity"]
            if _is_given_back(document)
            else yard.scheduler.free_consumable(name)
        )
        yard.scheduler.change_consumable(name, -gone, is_replenishable=_is_given_back(document))
    return {}


def describe(yard: EndpointState, request: Document) -> Document:
    document = _existing(yard, request["consumableResource"])
    free = yard.scheduler.free_consumable(document["consumableResourceName"])
    visible = {key: value for key, value in document.items() if key != "clientToken"}
    return {
        **visible,
        "availableQuantity": max(0, free),
        "inUseQuantity": document["totalQuantity"] - free,
    }


def list_all(yard: EndpointState, request: Document) -> Document:
    found = yard.all(CONSUMABLE)
    for filter in request.get("filters", []):
        if filter.get("name") != "CONSUMABLE_RESOURCE_NAME":
            raise InvalidRequestError(
                f"filters: name must be CONSUMABLE_RESOURCE_NAME; got {filter.get('name')!r}"
            )
        found = [
            d
            for d in found
            if any(_matches(v, d["consumableResourceName"]) for v in filter.get("values", []))
        ]
    summaries = []
    for document in found:
        free = yard.scheduler.free_consumable(document["consumableResourceName"])
        members = (
            "consumableResourceArn",
            "consumableResourceName",
            "totalQuantity",
            "resourceType",
        )
        in_use = document["totalQuantity"] - free
        summaries.append(
            {**{member: document[member] for member in members}, "inUseQuantity": in_use}
        )
    some, token = page(summaries, size_of_page(request, 100), request.get("nextToken"))
    return {"consumableResources": list(some), **({"nextToken": token} if token else {})}


def list_jobs(yard: EndpointState, request: Document) -> Document:
    """ListJobsByConsumableResource."""
    document = _existing(yard, request["consumableResource"])
    name, filters = document["consumableResourceName"], request.get("filters", [])
    for filter in filters:
        if filter.get("name") not in ("JOB_STATUS", "JOB_NAME"):
            raise InvalidRequestError(
                f"filters: name must be JOB_STATUS or JOB_NAME; got {filter.get('name')!r}"
            )
    found = []
    for job in yard.all(JOB):
        quantity = _quantity(job, name)
        status = yard.scheduler.summary(job["jobId"]).state.value
        if not quantity or not all(_passes(job["jobName"], status, filter) for filter in filters):
            continue
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
        row = yard.loop.row(job["jobId"])
        if row.started_ms is not None:
            summary["startedAt"] = row.started_ms
        if row.status_reason:
            summary["statusReason"] = row.status_reason
        found.append(summary)
    some, token = page(found[::-1], size_of_page(request, 100), request.get("nextToken"))
    return {"jobs": list(some), **({"nextToken": token} if token else {})}


def _passes(job_name: str, status: str, filter: Document) -> bool:
    values = filter.get("values", [])
    if filter["name"] == "JOB_STATUS":
        return status in values
    return any(_matches(value, job_name) for value in values)


def _matches(pattern: str, name: str) -> bool:
    """Case does not count, and a final * stands for anything."""
    pattern, name = pattern.lower(), name.lower()
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _answer(document: Document) -> Document:
    members = ("consumableResourceName", "consumableResourceArn", "totalQuantity")
    return {member: document[member] for member in members}


def _existing(yard: EndpointState, name: str) -> Document:
    document = yard.get(CONSUMABLE, name)
    if document is None:
        raise InvalidRequestError(f"{name} does not exist")
    return document
