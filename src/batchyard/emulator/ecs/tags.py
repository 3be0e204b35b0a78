"""Tags of tasks, task definitions, services and container instances; moto has all others."""

from __future__ import annotations

from collections.abc import Iterable

from batchyard.emulator.ecs import task_definitions
from batchyard.emulator.ecs.container_specs import invalid
from batchyard.emulator.ecs.records import ContainerInstance, EcsTask, Service
from batchyard.emulator.state import Document, EndpointState

_MAX_TAGS = 50


def check_tags(tags: Iterable[Document]) -> None:
    """Raise ApiError for tags that a user cannot set."""
    if any(entry.get("key", "").lower().startswith("aws:") for entry in tags):
        raise invalid("aws: prefixed tag key names are not allowed for external use.")


def tag(state: EndpointState, request: Document) -> Document | None:
    tags = _find_tags(state, request["resourceArn"])
    if tags is None:
        return None
    merged = {entry["key"]: entry for entry in (*tags, *request["tags"]) if "key" in entry}
    if len(merged) > _MAX_TAGS:
        raise invalid(f"A resource can have at most {_MAX_TAGS} tags.")
    tags[:] = merged.values()
    return {}


def untag(state: EndpointState, request: Document) -> Document | None:
    tags = _find_tags(state, request["resourceArn"])
    if tags is None:
        return None
    tags[:] = [entry for entry in tags if entry.get("key") not in request["tagKeys"]]
    return {}


def list_tags(state: EndpointState, request: Document) -> Document | None:
    tags = _find_tags(state, request["resourceArn"])
    return None if tags is None else {"tags": tags}


def _find_tags(state: EndpointState, arn: str) -> list[Document] | None:
    """Return the list of tags of a resource, to be changed in place; None for one of moto."""
    kind = arn.rpartition(":")[2].partition("/")[0]
    if ":task-definition/" in arn:
        definition = task_definitions.find(state, arn)
        tags: list[Document] | None = None if definition is None else definition["_tags"]
        return tags
    resources: dict[str, Iterable[EcsTask | Service | ContainerInstance]] = {
        "task": state.ecs.tasks.values(),
        "service": state.ecs.services.values(),
        "container-instance": state.ecs.instances.values(),
    }
    for resource in resources.get(kind, ()):
        if resource.arn == arn:
            # Requests may share their lists of tags.
            resource.tags = list(resource.tags)
            return resource.tags
    return None
