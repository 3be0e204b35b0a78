"""Compute environments (facts, 8): their operations, and what the scheduler uses of them."""

from __future__ import annotations

import uuid

from batchyard.batch.jobs import Resources
from batchyard.batch.queues import ComputeEnvironment
from batchyard.emulator import compute_resources, names
from batchyard.emulator.api_errors import InvalidRequestError
from batchyard.emulator.compute_resources import FARGATE_TYPES
from batchyard.emulator.paging import MAX_RESULTS, page_answer
from batchyard.emulator.state import ENVIRONMENT, QUEUE, Document, EndpointState

_UNLIMITED_MIB = 2**40
_SERVICE_LINKED_ROLE = "role/aws-service-role/batch.amazonaws.com/AWSServiceRoleForBatch"


def create(state: EndpointState, request: Document) -> Document:
    name = names.require_name("computeEnvironmentName", request["computeEnvironmentName"])
    state.require_new(ENVIRONMENT, name)
    _check_kind(request)
    environment_id = uuid.uuid4()
    arn = state.arn(ENVIRONMENT, name)
    cluster = f"AWSBatch-{name}-{environment_id}"
    role = request.get("serviceRole", f"arn:aws:iam::{names.ACCOUNT_ID}:{_SERVICE_LINKED_ROLE}")
    document: Document = {
        "computeEnvironmentName": name,
        "computeEnvironmentArn": arn,
        "ecsClusterArn": f"arn:aws:ecs:{state.region}:{names.ACCOUNT_ID}:cluster/{cluster}",
        "tags": request.get("tags", {}),
        "type": request["type"],
        "state": request.get("state", "ENABLED"),
        "status": "VALID",
        "statusReason": "ComputeEnvironment Healthy",
        "serviceRole": role,
        "updatePolicy": {"terminateJobsOnUpdate": False, "jobExecutionTimeoutMinutes": 30},
        "containerOrchestrationType": "ECS",
        "uuid": str(environment_id),
    }
    if "computeResources" in request:
        document["computeResources"] = compute_resources.complete(
            state, request["computeResources"]
        )
    if "unmanagedvCpus" in request:
        document["unmanagedvCpus"] = request["unmanagedvCpus"]
    _save(state, document)
    return {"computeEnvironmentName": name, "computeEnvironmentArn": arn}


def _check_kind(request: Document) -> None:
    if "eksConfiguration" in request:
        raise InvalidRequestError(
            "this endpoint runs jobs on ECS-type compute; eksConfiguration is not for it"
        )
    if request["type"] == "MANAGED":
        if "computeResources" not in request:
            raise InvalidRequestError(
                "computeResources must be provided for a MANAGED compute environment"
            )
        if "unmanagedvCpus" in request:
            raise InvalidRequestError("unmanagedvCpus is only for an UNMANAGED compute environment")
        return
    if "serviceRole" not in request:
        raise InvalidRequestError(
            "serviceRole must be provided for an UNMANAGED compute environment"
        )
    if "computeResources" in request:
        raise InvalidRequestError(
            "computeResources must not be provided for an UNMANAGED compute environment"
        )


def update(state: EndpointState, request: Document) -> Document:
    document = dict(state.require(ENVIRONMENT, request["computeEnvironment"]))
    has_service_linked_role = _is_service_linked(document["serviceRole"])
    change = request.get("computeResources", {})
    if change:
        if document["type"] != "MANAGED":
            raise InvalidRequestError(
                "computeResources can only be updated for a MANAGED compute environment"
            )
        document["computeResources"] = compute_resources.update(
            state,
            document["computeResources"],
            change,
            has_service_linked_role=has_service_linked_role,
        )
    new_role = request.get("serviceRole", document["serviceRole"])
    if _is_service_linked(new_role) != has_service_linked_role:
        raise InvalidRequestError(
            "a service-linked role cannot be exchanged for another role, nor the other way round"
        )
    for member in ("state", "serviceRole", "unmanagedvCpus"):
        if member in request:
            document[member] = request[member]
    document["updatePolicy"] = document["updatePolicy"] | request.get("updatePolicy", {})
    _save(state, document)
    members = ("computeEnvironmentName", "computeEnvironmentArn")
    return {member: document[member] for member in members}


def delete(state: EndpointState, request: Document) -> Document:
    document = state.get(ENVIRONMENT, request["computeEnvironment"])
    if document is None:
        return {}
    if document["state"] != "DISABLED":
        raise InvalidRequestError("Cannot delete, compute environment must be disabled first")
    arn = document["computeEnvironmentArn"]
    for queue in state.documents(QUEUE):
        if any(entry["computeEnvironment"] == arn for entry in queue["computeEnvironmentOrder"]):
            raise InvalidRequestError("Cannot delete, found existing JobQueue relationship")
    state.remove(ENVIRONMENT, document["computeEnvironmentName"])
    state.save()
    return {}


def describe(state: EndpointState, request: Document) -> Document:
    requested = request.get("computeEnvironments", [])
    if len(requested) > MAX_RESULTS:
        raise InvalidRequestError("Maximum number of compute environments supported is 100.")
    environments = state.documents(ENVIRONMENT)
    if requested:
        environment_names = {names.strip_arn(name) for name in requested}
        environments = [
            environment
            for environment in environments
            if environment["computeEnvironmentName"] in environment_names
        ]
    return page_answer("computeEnvironments", environments, request)


def _save(state: EndpointState, document: Document) -> None:
    state.put(ENVIRONMENT, document["computeEnvironmentName"], document)
    state.save()
    state.scheduler.set_environment(to_environment(state, document))


def _is_service_linked(role: str) -> bool:
    return role.endswith(_SERVICE_LINKED_ROLE)


# -- the scheduler's environment ------------------------------------------------------------------


def to_environment(state: EndpointState, document: Document) -> ComputeEnvironment:
    """Return the compute environment that the scheduler uses."""
    name = document["computeEnvironmentName"]
    is_enabled = document["state"] == "ENABLED" and document["status"] == "VALID"
    resources = document.get("computeResources")
    if resources is None:
        # The instances of an UNMANAGED environment are the user's own: this machine.
        return ComputeEnvironment(name, state.machine, is_enabled=is_enabled)
    offers: tuple[Resources, ...] = ()
    if not is_fargate(document):
        offers = compute_resources.largest_offers(state, resources["instanceTypes"])
    gpus = max((offer.gpus for offer in offers), default=0)
    # An environment limits only vCPUs. Instances and this machine limit GPUs and memory.
    limit = Resources(
        resources["maxvCpus"], _UNLIMITED_MIB, max(gpus, state.machine.gpus) if gpus else 0
    )
    return ComputeEnvironment(name, limit, offers, is_enabled)


def is_fargate(document: Document) -> bool:
    return document.get("computeResources", {}).get("type") in FARGATE_TYPES


def architecture(document: Document) -> str | None:
    """Return arm64 or x86_64; None for Fargate and UNMANAGED, which do not name types."""
    resources = document.get("computeResources")
    if resources is None or is_fargate(document):
        return None
    has_arm = any(compute_resources.is_arm(name) for name in resources["instanceTypes"])
    return "arm64" if has_arm else "x86_64"


def smallest_type(state: EndpointState, document: Document, requested: Resources) -> str | None:
    """Return the smallest instance type that a job fits on; of equal types, the first.

    Returns None for Fargate and UNMANAGED, which do not name types.
    """
    resources = document.get("computeResources")
    if resources is None or is_fargate(document):
        return None
    offers = (
        (name, state.instance_resources(name))
        for name in compute_resources.instance_types(state, resources["instanceTypes"])
    )
    sizes = {
        name: (offer.gpus, offer.vcpus, offer.memory_mib)
        for name, offer in offers
        if offer is not None and requested.fits_in(offer)
    }
    return min(sizes, key=lambda name: sizes[name], default=None)
