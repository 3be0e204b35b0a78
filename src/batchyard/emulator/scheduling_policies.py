"""Scheduling policies (facts, 7.1): the operations."""

from __future__ import annotations

import re

from batchyard.emulator import job_queues, names
from batchyard.emulator.api_errors import InvalidRequestError
from batchyard.emulator.paging import page, size_of_page
from batchyard.emulator.state import POLICY, QUEUE, Document, EndpointState

_SHARE = re.compile(r"[A-Za-z0-9]{0,255}\*?")


def create(yard: EndpointState, request: Document) -> Document:
    name = names.require_name("name", request["name"])
    if yard.get(POLICY, name) is not None:
        raise InvalidRequestError("Object already exists")
    if "quotaSharePolicy" in request:
        raise InvalidRequestError(
            "this endpoint runs jobs on ECS-type compute; quotaSharePolicy is not for it"
        )
    arn = yard.arn(POLICY, name)
    document = {"name": name, "arn": arn, "tags": request.get("tags", {})}
    document["fairsharePolicy"] = _checked(request.get("fairsharePolicy", {}))
    yard.keep(POLICY, name, document)
    yard.save()
    return {"name": name, "arn": arn}


def update(yard: EndpointState, request: Document) -> Document:
    document = dict(_existing(yard, request["arn"]))
    if "fairsharePolicy" in request:
        document["fairsharePolicy"] = _checked(request["fairsharePolicy"])
    yard.keep(POLICY, document["name"], document)
    yard.save()
    for queue in yard.all(QUEUE):
        if queue.get("schedulingPolicyArn") == document["arn"]:
            yard.scheduler.set_queue(job_queues.core(yard, queue))
    return {}


def delete(yard: EndpointState, request: Document) -> Document:
    document = yard.get(POLICY, request["arn"])
    if document is None:
        return {}
    if any(queue.get("schedulingPolicyArn") == document["arn"] for queue in yard.all(QUEUE)):
        raise InvalidRequestError("Cannot delete, found existing JobQueue relationship")
    yard.forget(POLICY, document["name"])
    yard.save()
    return {}


def describe(yard: EndpointState, request: Document) -> Document:
    if len(request["arns"]) > 100:
        raise InvalidRequestError("Maximum number of scheduling policies supported is 100.")
    found = [yard.get(POLICY, arn) for arn in request["arns"]]
    return {"schedulingPolicies": [document for document in found if document is not None]}


def list_all(yard: EndpointState, request: Document) -> Document:
    arns = [{"arn": document["arn"]} for document in yard.all(POLICY)]
    some, token = page(arns, size_of_page(request, 100), request.get("nextToken"))
    return {"schedulingPolicies": list(some), **({"nextToken": token} if token else {})}


def _checked(policy: Document) -> Document:
    if not 0 <= policy.get("shareDecaySeconds", 0) <= 604800:
        raise InvalidRequestError("shareDecaySeconds must be between 0 and 604800")
    if not 0 <= policy.get("computeReservation", 0) <= 99:
        raise InvalidRequestError("computeReservation must be between 0 and 99")
    entries = policy.get("shareDistribution", [])
    if len(entries) > 500:
        raise InvalidRequestError("shareDistribution must have at most 500 entries")
    for entry in entries:
        share = entry["shareIdentifier"]
        if not share or not _SHARE.fullmatch(share):
            raise InvalidRequestError(
                f"shareIdentifier must be letters and digits, with at most a final *; got {share!r}"
            )
        if not 0.0001 <= entry.get("weightFactor", 1.0) <= 999.9999:
            raise InvalidRequestError("weightFactor must be between 0.0001 and 999.9999")
    shares = [entry["shareIdentifier"] for entry in entries]
    for number, one in enumerate(shares):
        for other in shares[number + 1 :]:
            if _overlap(one, other):
                raise InvalidRequestError(f"share identifiers must not overlap: {one} and {other}")
    return policy


def _overlap(one: str, other: str) -> bool:
    if one == other:
        return True
    return any(
        a.endswith("*") and b.rstrip("*").startswith(a[:-1])
        for a, b in ((one, other), (other, one))
    )


def _existing(yard: EndpointState, arn: str) -> Document:
    document = yard.get(POLICY, arn)
    if document is None:
        raise InvalidRequestError(f"{arn} does not exist")
    return document
