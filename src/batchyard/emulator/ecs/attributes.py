"""Attributes of container instances that clients add, for placement constraints."""

from __future__ import annotations

from batchyard.emulator import names
from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.ecs import clusters, instances
from batchyard.emulator.ecs.container_specs import invalid
from batchyard.emulator.ecs.paging import page
from batchyard.emulator.ecs.records import ContainerInstance
from batchyard.emulator.state import Document, EndpointState

_MAX_ATTRIBUTES = 10


def put(state: EndpointState, request: Document) -> Document:
    targets = _find_targets(state, request)
    for entry, instance in zip(request["attributes"], targets, strict=True):
        instance.attributes[entry["name"]] = entry.get("value", "")
    return {"attributes": request["attributes"]}


def delete(state: EndpointState, request: Document) -> Document:
    targets = _find_targets(state, request)
    for entry, instance in zip(request["attributes"], targets, strict=True):
        instance.attributes.pop(entry["name"], None)
    return {"attributes": request["attributes"]}


def list_attributes(state: EndpointState, request: Document) -> Document:
    cluster = clusters.require(state, request)
    name, value = request.get("attributeName"), request.get("attributeValue")
    entries = [
        {
            "name": attribute,
            "targetId": instance.arn,
            **({"value": attribute_value} if attribute_value else {}),
        }
        for instance in instances.instances_of(state, cluster.name)
        for attribute, attribute_value in instance.attributes.items()
        if name in (None, attribute) and value in (None, attribute_value)
    ]
    return page("attributes", entries, request)


def _find_targets(state: EndpointState, request: Document) -> list[ContainerInstance]:
    """Return the instance of each attribute of a request. Raises ApiError."""
    cluster = clusters.require(state, request)
    if not 1 <= len(request["attributes"]) <= _MAX_ATTRIBUTES:
        raise invalid(f"A request must have 1 to {_MAX_ATTRIBUTES} attributes.")
    targets = []
    for entry in request["attributes"]:
        target = entry.get("targetId", "")
        instance = instances.find(state, cluster.name, names.strip_arn(target))
        if instance is None:
            raise ApiError(
                "TargetNotFoundException",
                f"The container instance {target!r} of an attribute was not found.",
            )
        targets.append(instance)
    return targets
