"""TagResource, UntagResource and ListTagsForResource, for each kind of resource that has an ARN."""

from __future__ import annotations

from batchyard.emulator import job_definitions, names
from batchyard.emulator.api_errors import InvalidRequestError
from batchyard.emulator.state import ARN_KINDS, JOB, Document, EndpointState


def tag(state: EndpointState, request: Document) -> Document:
    kind, name, document = _require_resource(state, request["resourceArn"])
    tags = {**document["tags"], **request["tags"]}
    job_definitions.check_tags(tags)
    state.put(kind, name, {**document, "tags": tags})
    state.save()
    return {}


def untag(state: EndpointState, request: Document) -> Document:
    kind, name, document = _require_resource(state, request["resourceArn"])
    tags = {key: value for key, value in document["tags"].items() if key not in request["tagKeys"]}
    state.put(kind, name, {**document, "tags": tags})
    state.save()
    return {}


def list_tags(state: EndpointState, request: Document) -> Document:
    _, _, document = _require_resource(state, request["resourceArn"])
    return {"tags": document["tags"]}


def _require_resource(state: EndpointState, arn: str) -> tuple[str, str, Document]:
    """Return kind, name and document of a resource. Raises InvalidRequestError."""
    kind, name = names.resource_kind(arn), names.strip_arn(arn)
    if kind not in ARN_KINDS:
        raise InvalidRequestError(f"{arn} is no ARN of a resource of AWS Batch")
    if kind == JOB and ":" in name:
        raise InvalidRequestError("tags are not for the children of an array job")
    document = state.get(kind, arn)
    if document is None:
        raise InvalidRequestError(f"{arn} does not exist")
    return kind, name, document
