"""Job queues (facts, 7): their operations, and the queue that the scheduler uses."""

from __future__ import annotations

from batchyard.batch.queues import FairShare, Queue, TimeLimit
from batchyard.emulator import compute_environments, names
from batchyard.emulator.api_errors import InvalidRequestError, RequestExecutionError
from batchyard.emulator.paging import MAX_RESULTS, page_answer
from batchyard.emulator.state import ENVIRONMENT, POLICY, QUEUE, Document, EndpointState

_UNSUPPORTED_TYPES = ("EKS", "SAGEMAKER_TRAINING", "ECS_MANAGED_INSTANCES")
_MAX_ENVIRONMENTS = 3
_MAX_PRIORITY = 1000
_TIME_LIMIT_REASONS = (
    "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY",
    "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE",
    "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT",
)


def create(state: EndpointState, request: Document) -> Document:
    name = names.require_name("jobQueueName", request["jobQueueName"])
    state.require_new(QUEUE, name)
    if "serviceEnvironmentOrder" in request or request.get("jobQueueType") in _UNSUPPORTED_TYPES:
        raise InvalidRequestError(
            "this endpoint runs jobs on ECS-type compute; such a queue is not for it"
        )
    order, is_fargate = _read_environment_order(state, request.get("computeEnvironmentOrder", []))
    queue_type = "ECS_FARGATE" if is_fargate else "ECS"
    if request.get("jobQueueType", queue_type) != queue_type:
        raise InvalidRequestError(
            f"jobQueueType must be {queue_type}, as the compute environments are; "
            f"got {request['jobQueueType']}"
        )
    _check_members(request)
    arn = state.arn(QUEUE, name)
    document: Document = {
        "jobQueueName": name,
        "jobQueueArn": arn,
        "state": request.get("state", "ENABLED"),
        "status": "VALID",
        "statusReason": "JobQueue Healthy",
        "priority": request["priority"],
        "computeEnvironmentOrder": order,
        "serviceEnvironmentOrder": [],
        "jobQueueType": queue_type,
        "tags": request.get("tags", {}),
        "jobStateTimeLimitActions": request.get("jobStateTimeLimitActions", []),
    }
    if "schedulingPolicyArn" in request:
        policy = state.require(POLICY, request["schedulingPolicyArn"])
        document["schedulingPolicyArn"] = policy["arn"]
    _save(state, document)
    return {"jobQueueName": name, "jobQueueArn": arn}


def update(state: EndpointState, request: Document) -> Document:
    document = dict(state.require(QUEUE, request["jobQueue"]))
    if "computeEnvironmentOrder" in request:
        order, is_fargate = _read_environment_order(state, request["computeEnvironmentOrder"])
        if is_fargate != (document["jobQueueType"] == "ECS_FARGATE"):
            raise InvalidRequestError(
                "a queue cannot change between EC2 and Fargate compute environments"
            )
        document["computeEnvironmentOrder"] = order
    _check_members(request)
    for member in ("priority", "state", "jobStateTimeLimitActions"):
        if member in request:
            document[member] = request[member]
    if "schedulingPolicyArn" in request:
        if "schedulingPolicyArn" not in document:
            raise InvalidRequestError(
                "a scheduling policy cannot be added to a job queue that was created without one"
            )
        policy = state.require(POLICY, request["schedulingPolicyArn"])
        document["schedulingPolicyArn"] = policy["arn"]
    _save(state, document)
    return {"jobQueueName": document["jobQueueName"], "jobQueueArn": document["jobQueueArn"]}


def delete(state: EndpointState, request: Document) -> Document:
    document = state.get(QUEUE, request["jobQueue"])
    if document is None:
        return {}
    if document["state"] != "DISABLED":
        raise InvalidRequestError("Cannot delete, job queue must be disabled first")
    state.remove(QUEUE, document["jobQueueName"])
    state.save()
    state.loop.perform(state.scheduler.delete_queue(document["jobQueueArn"]))
    return {}


def describe(state: EndpointState, request: Document) -> Document:
    requested = request.get("jobQueues", [])
    if len(requested) > MAX_RESULTS:
        raise InvalidRequestError("Maximum number of job queues supported is 100.")
    queues = state.select(QUEUE, requested) if requested else state.documents(QUEUE)
    return page_answer("jobQueues", queues, request)


# -- the scheduler's queue ------------------------------------------------------------------------


def to_queue(state: EndpointState, document: Document) -> Queue:
    """Return the queue that the scheduler uses."""
    order = sorted(document["computeEnvironmentOrder"], key=lambda entry: int(entry["order"]))
    policy = None
    if "schedulingPolicyArn" in document:
        policy = state.get(POLICY, document["schedulingPolicyArn"])
    return Queue(
        document["jobQueueArn"],
        tuple(entry["computeEnvironment"] for entry in order),
        document["priority"],
        document["state"] == "ENABLED",
        None if policy is None else _to_fair_share(policy),
        tuple(
            TimeLimit(action["reason"], action["maxTimeSeconds"])
            for action in document["jobStateTimeLimitActions"]
        ),
    )


def _to_fair_share(document: Document) -> FairShare:
    policy = document["fairsharePolicy"]
    entries = policy.get("shareDistribution", [])
    weights = tuple((entry["shareIdentifier"], entry.get("weightFactor", 1.0)) for entry in entries)
    return FairShare(
        weights, policy.get("shareDecaySeconds", 0), policy.get("computeReservation", 0)
    )


def _save(state: EndpointState, document: Document) -> None:
    state.put(QUEUE, document["jobQueueName"], document)
    state.save()
    state.scheduler.set_queue(to_queue(state, document))


# -- checks ---------------------------------------------------------------------------------------


def _read_environment_order(
    state: EndpointState, order: list[Document]
) -> tuple[list[Document], bool]:
    """Return the checked order with ARNs, and whether its environments are Fargate."""
    if not order:
        raise RequestExecutionError("computeEnvironmentOrder is required.")
    if len(order) > _MAX_ENVIRONMENTS:
        raise RequestExecutionError(
            f"computeEnvironmentOrder must have 1 to {_MAX_ENVIRONMENTS} entries; got {len(order)}"
        )
    if len({entry["order"] for entry in order}) < len(order):
        raise RequestExecutionError("Duplicate ComputeEnvironment order values.")
    environments = [_require_valid(state, entry["computeEnvironment"]) for entry in order]
    fargate_kinds = {compute_environments.is_fargate(environment) for environment in environments}
    if len(fargate_kinds) > 1:
        raise RequestExecutionError("Fargate and EC2 compute environments can not be mixed.")
    architectures = {compute_environments.architecture(e) for e in environments}
    if {"arm64", "x86_64"} <= architectures:
        raise InvalidRequestError(
            "computeEnvironmentOrder must not mix compute environments of x86_64 and of arm64"
        )
    checked = [
        {"order": entry["order"], "computeEnvironment": environment["computeEnvironmentArn"]}
        for entry, environment in zip(order, environments, strict=True)
    ]
    return checked, fargate_kinds == {True}


def _require_valid(state: EndpointState, name_or_arn: str) -> Document:
    environment = state.get(ENVIRONMENT, name_or_arn)
    if environment is None or environment["status"] != "VALID":
        raise RequestExecutionError(
            "Compute Environments must be created and valid before attaching them to a job queue"
        )
    return environment


def _check_members(request: Document) -> None:
    priority = request.get("priority", 0)
    if not 0 <= priority <= _MAX_PRIORITY:
        raise InvalidRequestError(f"priority must be between 0 and {_MAX_PRIORITY}; got {priority}")
    actions = request.get("jobStateTimeLimitActions", [])
    for action in actions:
        _check_time_limit(action)
    if len({(action["state"], action["reason"]) for action in actions}) < len(actions):
        raise RequestExecutionError("Duplicate job state limit actions are not allowed.")


def _check_time_limit(action: Document) -> None:
    if action["reason"] not in _TIME_LIMIT_REASONS:
        raise InvalidRequestError(
            "jobStateTimeLimitActions: reason must be one of "
            f"{', '.join(_TIME_LIMIT_REASONS)}; got {action['reason']}"
        )
    if action["state"] != "RUNNABLE" or action["action"] != "CANCEL":
        raise InvalidRequestError(
            "jobStateTimeLimitActions: state must be RUNNABLE and action CANCEL"
        )
    if not 600 <= action["maxTimeSeconds"] <= 86400:
        raise InvalidRequestError(
            "jobStateTimeLimitActions: maxTimeSeconds must be between 600 and 86400"
        )
