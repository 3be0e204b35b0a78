"""Consumable resources (facts, 7.3): the operations. What is free of one is the scheduler's to know."""

from __future__ import annotations

from batchyard.emulator import names
from batchyard.emulator.failures import ClientException
from batchyard.emulator.paging import page, size_of_page
from batchyard.emulator.yard import CONSUMABLE, JOB, Document, Yard


def create(yard: Yard, request: Document) -> Document:
    name = names.require_name("consumableResourceName", request["consumableResourceName"])
    if yard.get(CONSUMABLE, name) is not None:
        raise ClientException("Object already exists")
    total = request.get("totalQuantity", 0)
    if total < 0:
        raise ClientException("totalQuantity must not be negative")
    document = {
        "consumableResourceName": name,
        "consumableResourceArn": yard.arn(CONSUMABLE, name),
        "totalQuantity": total,
        "resourceType": request.get("resourceType", "REPLENISHABLE"),
        "createdAt": yard.now_ms(),
        "tags": request.get("tags", {}),
    }
    yard.keep(CONSUMABLE, name, document)
    yard.save()
    enter(yard, document)
    return {"consumableResourceName": name, "consumableResourceArn": document["consumableResourceArn"]}


def enter(yard: Yard, document: Document) -> None:
    is_given_back = document["resourceType"] == "REPLENISHABLE"
    name = document["consumableResourceName"]
    yard.scheduler.change_consumable(name, document["totalQuantity"], is_replenishable=is_given_back)


def update(yard: Yard, request: Document) -> Document:
    document = _existing(yard, request["consumableResource"])
    token = request.get("clientToken")
    if token is not None and token == document.get("clientToken"):
        return _answer(document)
    quantity, total = request.get("quantity", 0), document["totalQuantity"]
    operation = request.get("operation", "SET")
    if operation not in ("SET", "ADD", "REMOVE"):
        raise ClientException(f"operation must be SET, ADD or REMOVE; got {operation!r}")
    if quantity < 0:
        raise ClientException("quantity must not be negative")
    wanted = {"SET": quantity, "ADD": total + quantity, "REMOVE": total - quantity}[operation]
    if wanted < 0:
        raise ClientException(f"there are only {total} of it, and {quantity} cannot be removed")
    document = {**document, "totalQuantity": wanted, "clientToken": token}
    name = document["consumableResourceName"]
    yard.keep(CONSUMABLE, name, document)
    yard.save()
    yard.scheduler.change_consumable(name, wanted - total)
    return _answer(document)


def delete(yard: Yard, request: Document) -> Document:
    document = yard.get(CONSUMABLE, request["consumableResource"])
    if document is not None:
        name = document["consumableResourceName"]
        yard.forget(CONSUMABLE, name)
        yard.save()
        yard.scheduler.change_consumable(name, -document["totalQuantity"])
    return {}


def describe(yard: Yard, request: Document) -> Document:
    document = _existing(yard, request["consumableResource"])
    free = yard.scheduler.free_consumable(document["consumableResourceName"])
    visible = {key: value for key, value in document.items() if key != "clientToken"}
    return {**visible, "availableQuantity": max(0, free), "inUseQuantity": document["totalQuantity"] - free}


def list_all(yard: Yard, request: Document) -> Document:
    found = yard.all(CONSUMABLE)
    for filter in request.get("filters", []):
        if filter.get("name") != "CONSUMABLE_RESOURCE_NAME":
            raise ClientException(f"filters: name must be CONSUMABLE_RESOURCE_NAME; got {filter.get('name')!r}")
        found = [d for d in found if any(_matches(v, d["consumableResourceName"]) for v in filter.get("values", []))]
    summaries = []
    for document in found:
        free = yard.scheduler.free_consumable(document["consumableResourceName"])
        members = ("consumableResourceArn", "consumableResourceName", "totalQuantity", "resourceType")
        in_use = document["totalQuantity"] - free
        summaries.append({**{member: document[member] for member in members}, "inUseQuantity": in_use})
    some, token = page(summaries, size_of_page(request, 100), request.get("nextToken"))
    return {"consumableResources": list(some), **({"nextToken": token} if token else {})}


def list_jobs(yard: Yard, request: Document) -> Document:
    """ListJobsByConsumableResource."""
    document = _existing(yard, request["consumableResource"])
    name = document["consumableResourceName"]
    found = []
    for job in yard.all(JOB):
        held = job.get("consumableResourceProperties", {}).get("consumableResourceList", [])
        quantity = sum(entry["quantity"] for entry in held if names.bare(entry["consumableResource"]) == name)
        if quantity:
            found.append(
                {
                    "jobArn": job["jobArn"],
                    "jobQueueArn": job["jobQueue"],
                    "jobName": job["jobName"],
                    "jobDefinitionArn": job["jobDefinition"],
                    "shareIdentifier": job.get("shareIdentifier", ""),
                    "jobStatus": yard.scheduler.summary(job["jobId"]).state.value,
                    "quantity": quantity,
                    "createdAt": job["createdAt"],
                    "consumableResourceProperties": job["consumableResourceProperties"],
                }
            )
    some, token = page(found[::-1], size_of_page(request, 100), request.get("nextToken"))
    return {"jobs": list(some), **({"nextToken": token} if token else {})}


def _matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _answer(document: Document) -> Document:
    members = ("consumableResourceName", "consumableResourceArn", "totalQuantity")
    return {member: document[member] for member in members}


def _existing(yard: Yard, name: str) -> Document:
    document = yard.get(CONSUMABLE, name)
    if document is None:
        raise ClientException(f"{name} does not exist")
    return document
