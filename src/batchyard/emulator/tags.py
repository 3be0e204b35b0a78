"""Tags of everything that has an ARN: TagResource, UntagResource, ListTagsForResource."""

from __future__ import annotations

from batchyard.emulator import job_definitions, names
from batchyard.emulator.api_errors import InvalidRequestError
from batchyard.emulator.state import JOB, KINDS, STOP, Document, EndpointState


def tag(yard: EndpointState, request: Document) -> Document:
    kind, name, document = _resource(yard, request["resourceArn"])
    tags = {**document["tags"], **request["tags"]}
    job_definitions.check_tags(tags)
    yard.keep(kind, name, {**document, "tags": tags})
    yard.save()
    return {}


def untag(yard: EndpointState, request: Document) -> Document:
    kind, name, document = _resource(yard, request["resourceArn"])
    tags = {key: value for key, value in document["tags"].items() if key not in request["tagKeys"]}
    yard.keep(kind, name, {**document, "tags": tags})
    yard.save()
    return {}


def list_all(yard: EndpointState, request: Document) -> Document:
    return {"tags": _resource(yard, request["resourceArn"])[2]["tags"]}


def _resource(yard: EndpointState, arn: str) -> tuple[str, str, Document]:
    kind, name = names.kind_of(arn), names.bare(arn)
    if kind not in KINDS or kind == STOP:
        raise InvalidRequestError(f"{arn} is no ARN of a resource of AWS Batch")
    if kind == JOB and ":" in name:
        raise InvalidRequestError("tags are not for the children of an array job")
    document = yard.get(kind, name)
    if document is None:
        raise InvalidRequestError(f"{arn} does not exist")
    return kind, name, document
