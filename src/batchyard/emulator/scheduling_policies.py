"""Scheduling policies (facts, 7.1): their operations."""

from __future__ import annotations

import re
from itertools import combinations

from batchyard.emulator import job_queues, names
from batchyard.emulator.api_errors import InvalidRequestError
from batchyard.emulator.paging import MAX_RESULTS, page_answer
from batchyard.emulator.state import POLICY, QUEUE, Document, EndpointState

_SHARE = re.compile(r"[A-Za-z0-9]{0,255}\*?")
_MAX_DECAY_S = 604800
_MAX_RESERVATION = 99
_MAX_SHARES = 500


def create(state: EndpointState, request: Document) -> Document:
    name = names.require_name("name", request["name"])
    state.require_new(POLICY, name)
    if "quotaSharePolicy" in request:
        raise InvalidRequestError(
            "this endpoint runs jobs on ECS-type compute; quotaSharePolicy is not for it"
        )
    policy = request.get("fairsharePolicy", {})
    _check_policy(policy)
    arn = state.arn(POLICY, name)
    tags = request.get("tags", {})
    state.put(POLICY, name, {"name": name, "arn": arn, "tags": tags, "fairsharePolicy": policy})
    state.save()
    return {"name": name, "arn": arn}


def update(state: EndpointState, request: Document) -> Document:
    document = dict(state.require(POLICY, request["arn"]))
    if "fairsharePolicy" in request:
        _check_policy(request["fairsharePolicy"])
        document["fairsharePolicy"] = request["fairsharePolicy"]
    state.put(POLICY, document["name"], document)
    state.save()
    for queue in _queues_of(state, document):
        state.scheduler.set_queue(job_queues.to_queue(state, queue))
    return {}


def delete(state: EndpointState, request: Document) -> Document:
    document = state.get(POLICY, request["arn"])
    if document is None:
        return {}
    if _queues_of(state, document):
        raise InvalidRequestError("Cannot delete, found existing JobQueue relationship")
    state.remove(POLICY, document["name"])
    state.save()
    return {}


def describe(state: EndpointState, request: Document) -> Document:
    if len(request["arns"]) > MAX_RESULTS:
        raise InvalidRequestError("Maximum number of scheduling policies supported is 100.")
    policies = [state.get(POLICY, arn) for arn in request["arns"]]
    return {"schedulingPolicies": [policy for policy in policies if policy is not None]}


def list_policies(state: EndpointState, request: Document) -> Document:
    arns = [{"arn": policy["arn"]} for policy in state.documents(POLICY)]
    return page_answer("schedulingPolicies", arns, request)


def _queues_of(state: EndpointState, policy: Document) -> list[Document]:
    queues = state.documents(QUEUE)
    return [queue for queue in queues if queue.get("schedulingPolicyArn") == policy["arn"]]


# -- checks ---------------------------------------------------------------------------------------


def _check_policy(policy: Document) -> None:
    if not 0 <= policy.get("shareDecaySeconds", 0) <= _MAX_DECAY_S:
        raise InvalidRequestError(f"shareDecaySeconds must be between 0 and {_MAX_DECAY_S}")
    if not 0 <= policy.get("computeReservation", 0) <= _MAX_RESERVATION:
        raise InvalidRequestError(f"computeReservation must be between 0 and {_MAX_RESERVATION}")
    entries = policy.get("shareDistribution", [])
    if len(entries) > _MAX_SHARES:
        raise InvalidRequestError(f"shareDistribution must have at most {_MAX_SHARES} entries")
    for entry in entries:
        _check_share(entry)
    shares = [entry["shareIdentifier"] for entry in entries]
    for first, second in combinations(shares, 2):
        if _covers(first, second) or _covers(second, first):
            raise InvalidRequestError(f"share identifiers must not overlap: {first} and {second}")


def _check_share(entry: Document) -> None:
    share = entry["shareIdentifier"]
    if not share or not _SHARE.fullmatch(share):
        raise InvalidRequestError(
            f"shareIdentifier must be letters and digits, with at most a final *; got {share!r}"
        )
    if not 0.0001 <= entry.get("weightFactor", 1.0) <= 999.9999:
        raise InvalidRequestError("weightFactor must be between 0.0001 and 999.9999")


def _covers(share: str, other_share: str) -> bool:
    """Return whether ``share`` is the other identifier, or a prefix of it that ends in *."""
    if share.endswith("*"):
        return other_share.rstrip("*").startswith(share[:-1])
    return share == other_share
