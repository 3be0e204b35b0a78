"""Compute environments (facts, 8): their operations, and what the scheduler uses of them."""

from __future__ import annotations

import uuid

from batchyard import ec2_types
from batchyard.batch.jobs import Resources
from batchyard.batch.queues import ComputeEnvironment, FleetSettings, InstanceType, TypeChoice
from batchyard.emulator import compute_resources, names
from batchyard.emulator.api_errors import InvalidRequestError, RequestExecutionError
from batchyard.emulator.compute_resources import FARGATE_TYPES
from batchyard.emulator.paging import MAX_RESULTS, page_answer
from batchyard.emulator.state import ENVIRONMENT, QUEUE, Document, EndpointState

#: Allocation strategy -> choice of the instance type. Nobody knows Spot's prices and capacity here.
_TYPE_CHOICES = {
    "BEST_FIT": TypeChoice.SMALLEST,
    "BEST_FIT_PROGRESSIVE": TypeChoice.BY_DEMAND,
    "SPOT_PRICE_CAPACITY_OPTIMIZED": TypeChoice.BY_DEMAND,
    "SPOT_CAPACITY_OPTIMIZED": TypeChoice.ANY,
    "BEST_FIT_PROGRESSIVE_ORDERED": TypeChoice.FIRST,
    "SPOT_CAPACITY_OPTIMIZED_PRIORITIZED": TypeChoice.FIRST,
}
_UNLIMITED_MIB = 2**40
_MAX_UPDATE_TIMEOUT_MIN = 360
_SERVICE_LINKED_ROLE = "role/aws-service-role/batch.amazonaws.com/AWSServiceRoleForBatch"


def create(state: EndpointState, request: Document) -> Document:
    name = names.require_name("computeEnvironmentName", request["computeEnvironmentName"])
    state.require_new(ENVIRONMENT, name)
    _check_kind(request)
    environment_id = uuid.uuid4()
    arn = state.arn(ENVIRONMENT, name)
    cluster = names.cluster_arn(state.region, f"AWSBatch-{name}-{environment_id}")
    role = request.get("serviceRole", names.iam_arn(state.region, _SERVICE_LINKED_ROLE))
    document: Document = {
        "computeEnvironmentName": name,
        "computeEnvironmentArn": arn,
        "ecsClusterArn": cluster,
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
    _request_vcpus(state, arn, request)
    return {"computeEnvironmentName": name, "computeEnvironmentArn": arn}


def _check_kind(request: Document) -> None:
    if "eksConfiguration" in request:
        raise InvalidRequestError(
            "this endpoint runs jobs on ECS-type compute; eksConfiguration is not for it"
        )
    if request.get("state") == "DISABLED":
        raise RequestExecutionError("Compute Environment must be created in ENABLED state.")
    if request["type"] == "MANAGED":
        if "computeResources" not in request:
            raise RequestExecutionError(
                "computeResources must be provided for a MANAGED compute environment"
            )
        if "unmanagedvCpus" in request:
            raise RequestExecutionError(
                "unmanagedvCpus is not applicable for managed Compute Environments"
            )
        return
    if "serviceRole" not in request:
        raise RequestExecutionError("ServiceRole is required.")
    if _is_service_linked(request["serviceRole"]):
        raise RequestExecutionError(
            "Service Linked Role cannot be used with UNMANAGED Compute Environment"
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
            _with_desired_vcpus(state, document)["computeResources"],
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
    _check_update_policy(request.get("updatePolicy", {}))
    document["updatePolicy"] = document["updatePolicy"] | request.get("updatePolicy", {})
    _save(state, document)
    if compute_resources.is_infrastructure_update(change):
        _replace_instances(state, document)
    _request_vcpus(state, document["computeEnvironmentArn"], request)
    members = ("computeEnvironmentName", "computeEnvironmentArn")
    return {member: document[member] for member in members}


def _check_update_policy(policy: Document) -> None:
    # botocore's model allows 7200 minutes, AWS Batch does not (facts, 8.10).
    minutes = policy.get("jobExecutionTimeoutMinutes", 1)
    if not 1 <= minutes <= _MAX_UPDATE_TIMEOUT_MIN:
        raise InvalidRequestError(
            "updatePolicy.jobExecutionTimeoutMinutes must be between 1 and "
            f"{_MAX_UPDATE_TIMEOUT_MIN}; got {minutes}"
        )


def _replace_instances(state: EndpointState, document: Document) -> None:
    """Let the instances end as the update policy says: at once, or when their jobs had time."""
    fleet = state.scheduler.fleet(document["computeEnvironmentArn"])
    if fleet is not None:
        policy = document["updatePolicy"]
        minutes = 0 if policy["terminateJobsOnUpdate"] else policy["jobExecutionTimeoutMinutes"]
        fleet.replace_hosts(minutes * 60_000)


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
    state.scheduler.remove_environment(arn)
    return {}


def describe(state: EndpointState, request: Document) -> Document:
    requested = request.get("computeEnvironments", [])
    if len(requested) > MAX_RESULTS:
        raise InvalidRequestError("Maximum number of compute environments supported is 100.")
    environments = (
        state.select(ENVIRONMENT, requested) if requested else state.documents(ENVIRONMENT)
    )
    described = [_with_desired_vcpus(state, environment) for environment in environments]
    return page_answer("computeEnvironments", described, request)


def _with_desired_vcpus(state: EndpointState, document: Document) -> Document:
    """Return the description of an environment with the vCPUs of its instances as of now."""
    fleet = state.scheduler.fleet(document["computeEnvironmentArn"])
    if fleet is None:
        return document
    resources = document["computeResources"] | {"desiredvCpus": fleet.vcpus}
    return document | {"computeResources": resources}


def _request_vcpus(state: EndpointState, arn: str, request: Document) -> None:
    fleet = state.scheduler.fleet(arn)
    vcpus = request.get("computeResources", {}).get("desiredvCpus")
    if fleet is not None and vcpus is not None:
        fleet.request_vcpus(vcpus)


def _save(state: EndpointState, document: Document) -> None:
    state.put(ENVIRONMENT, document["computeEnvironmentName"], document)
    state.save()
    state.scheduler.set_environment(to_environment(state, document))


def _is_service_linked(role: str) -> bool:
    return role.endswith(_SERVICE_LINKED_ROLE)


# -- the scheduler's environment ------------------------------------------------------------------


def to_environment(state: EndpointState, document: Document) -> ComputeEnvironment:
    """Return the compute environment that the scheduler uses."""
    arn = document["computeEnvironmentArn"]
    is_enabled = document["state"] == "ENABLED" and document["status"] == "VALID"
    resources = document.get("computeResources")
    if resources is None:
        # The instances of an UNMANAGED environment are the user's own: this machine.
        return ComputeEnvironment(arn, state.machine, is_enabled=is_enabled)
    limit = Resources(resources["maxvCpus"], _UNLIMITED_MIB)
    fleet = None if is_fargate(document) else _fleet_settings(state, resources)
    return ComputeEnvironment(arn, limit, is_enabled, fleet)


def _fleet_settings(state: EndpointState, resources: Document) -> FleetSettings:
    strategy, is_spot = resources["allocationStrategy"], resources["type"] == "SPOT"
    scale_down_min = resources.get("scalingPolicy", {}).get("minScaleDownDelayMinutes", 0)
    return FleetSettings(
        types=tuple(
            InstanceType(name, registered)
            for name in compute_resources.instance_types(state, resources["instanceTypes"])
            if (registered := ec2_types.registered_resources(name)) is not None
        ),
        choice=_TYPE_CHOICES[strategy],
        min_vcpus=resources["minvCpus"],
        # Only BEST_FIT on demand never passes the maximum (facts, 8.2).
        may_pass_max=strategy != "BEST_FIT" or is_spot,
        is_spot=is_spot,
        launch_s=state.host_delays.launch_s,
        idle_s=scale_down_min * 60 or state.host_delays.idle_s,
    )


def is_fargate(document: Document) -> bool:
    return document.get("computeResources", {}).get("type") in FARGATE_TYPES


def architecture(document: Document) -> str | None:
    """Return arm64 or x86_64; None for Fargate and UNMANAGED, which do not name types."""
    resources = document.get("computeResources")
    if resources is None or is_fargate(document):
        return None
    has_arm = any(ec2_types.is_arm(name) for name in resources["instanceTypes"])
    return "arm64" if has_arm else "x86_64"
