"""Job queues (facts, 7): the operations, the snapshot of what is next, and what a queue means to the scheduler."""

from __future__ import annotations

from batchyard.batch.queues import FairShare, Queue, TimeLimit
from batchyard.emulator import compute_environments, names
from batchyard.emulator.api_errors import InvalidRequestError
from batchyard.emulator.paging import page, size_of_page
from batchyard.emulator.state import ENVIRONMENT, JOB, POLICY, QUEUE, Document, EndpointState

_OTHER_TYPES = ("EKS", "SAGEMAKER_TRAINING", "ECS_MANAGED_INSTANCES")
_MOST_ENVIRONMENTS = 3
_MOST_PRIORITY = 1000
_LIMITED_REASONS = (
    "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY",
    "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE",
    "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT",
)
_MOST_IN_SNAPSHOT = 100


def create(yard: EndpointState, request: Document) -> Document:
    name = names.require_name("jobQueueName", request["jobQueueName"])
    if yard.get(QUEUE, name) is not None:
        raise InvalidRequestError("Object already exists")
    if "serviceEnvironmentOrder" in request or request.get("jobQueueType") in _OTHER_TYPES:
        raise InvalidRequestError(
            "this endpoint runs jobs on ECS-type compute; such a queue is not for it"
        )
    order, is_fargate = _checked_order(yard, request.get("computeEnvironmentOrder", []))
    kind = "ECS_FARGATE" if is_fargate else "ECS"
    if request.get("jobQueueType", kind) != kind:
        raise InvalidRequestError(
            f"jobQueueType must be {kind}, as the compute environments are; got {request['jobQueueType']}"
        )
    arn = yard.arn(QUEUE, name)
    document: Document = {
        "jobQueueName": name,
        "jobQueueArn": arn,
        "state": request.get("state", "ENABLED"),
        "status": "VALID",
        "statusReason": "JobQueue Healthy",
        "priority": _checked_priority(request["priority"]),
        "computeEnvironmentOrder": order,
        "serviceEnvironmentOrder": [],
        "jobQueueType": kind,
        "tags": request.get("tags", {}),
        "jobStateTimeLimitActions": _checked_limits(request.get("jobStateTimeLimitActions", [])),
    }
    if "schedulingPolicyArn" in request:
        document["schedulingPolicyArn"] = _existing_policy(yard, request["schedulingPolicyArn"])[
            "arn"
        ]
    _enter(yard, document)
    return {"jobQueueName": name, "jobQueueArn": arn}


def update(yard: EndpointState, request: Document) -> Document:
    document = dict(existing(yard, request["jobQueue"]))
    if "computeEnvironmentOrder" in request:
        document["computeEnvironmentOrder"], is_fargate = _checked_order(
            yard, request["computeEnvironmentOrder"]
        )
        if is_fargate != (document["jobQueueType"] == "ECS_FARGATE"):
            raise InvalidRequestError(
                "a queue cannot change between EC2 and Fargate compute environments"
            )
    if "priority" in request:
        document["priority"] = _checked_priority(request["priority"])
    if "state" in request:
        document["state"] = request["state"]
    if "jobStateTimeLimitActions" in request:
        document["jobStateTimeLimitActions"] = _checked_limits(request["jobStateTimeLimitActions"])
    if "schedulingPolicyArn" in request:
        if "schedulingPolicyArn" not in document:
            raise InvalidRequestError(
                "a scheduling policy cannot be added to a job queue that was created without one"
            )
        document["schedulingPolicyArn"] = _existing_policy(yard, request["schedulingPolicyArn"])[
            "arn"
        ]
    _enter(yard, document)
    return {"jobQueueName": document["jobQueueName"], "jobQueueArn": document["jobQueueArn"]}


def delete(yard: EndpointState, request: Document) -> Document:
    document = yard.get(QUEUE, request["jobQueue"])
    if document is None:
        return {}
    if document["state"] != "DISABLED":
        raise InvalidRequestError("Cannot delete, job queue must be disabled first")
    name = document["jobQueueName"]
    yard.forget(QUEUE, name)
    yard.save()
    yard.loop.perform(yard.scheduler.delete_queue(name))
    return {}


def describe(yard: EndpointState, request: Document) -> Document:
    wanted = request.get("jobQueues")
    if wanted is not None and len(wanted) > 100:
        raise InvalidRequestError("Maximum number of job queues supported is 100.")
    found = yard.all(QUEUE)
    if wanted:
        bare = [names.bare(name) for name in wanted]
        found = [document for document in found if document["jobQueueName"] in bare]
    some, token = page(found, size_of_page(request, 100), request.get("nextToken"))
    return {"jobQueues": list(some), **({"nextToken": token} if token else {})}


def snapshot(yard: EndpointState, request: Document) -> Document:
    """GetJobQueueSnapshot: the RUNNABLE jobs that are next, and what each share uses."""
    document = existing(yard, request["jobQueue"])
    name = document["jobQueueName"]
    departures = _departures(yard, document)
    jobs = []
    for job_id, index in yard.scheduler.front_of(name, _MOST_IN_SNAPSHOT):
        job = yard.get(JOB, job_id)
        assert job is not None
        arn = job["jobArn"] if "arrayProperties" not in job else f"{job['jobArn']}:{index}"
        jobs.append(
            {
                "jobArn": arn,
                "earliestTimeAtPosition": _at_position_since(yard, job, index, departures),
            }
        )
    now_ms = yard.now_ms()
    used: dict[str, float] = {}
    for job_id, _ in yard.scheduler.placed_children():
        job = yard.get(JOB, job_id)
        if job is not None and names.bare(job["jobQueue"]) == name:
            share = job.get("shareIdentifier", "")
            used[share] = used.get(share, 0.0) + job["_resources"]["vcpus"]
    utilization: Document = {
        "totalCapacityUsage": [{"capacityUnit": "VCPU", "quantity": sum(used.values())}],
        "lastUpdatedAt": now_ms,
    }
    if "schedulingPolicyArn" in document:
        top = sorted(used.items(), key=lambda item: -item[1])
        usage = [
            {
                "shareIdentifier": share,
                "capacityUsage": [{"capacityUnit": "VCPU", "quantity": vcpus}],
            }
            for share, vcpus in top
        ]
        utilization["fairshareUtilization"] = {
            "activeShareCount": len(used),
            "topCapacityUtilization": usage[:20],
        }
    return {
        "frontOfQueue": {"jobs": jobs, "lastUpdatedAt": now_ms},
        "queueUtilization": utilization,
    }


def _departures(yard: EndpointState, queue: Document) -> list[tuple[int, int]]:
    """(a job's number, when it or one of its children left the line); of arrays the first child and those that run."""
    found: list[tuple[int, int]] = []
    for job in yard.all(JOB):
        if job["jobQueue"] == queue["jobQueueArn"]:
            row = yard.loop.row(job["jobId"])
            left_ms = row.started_ms or row.ended_ms
            found += [(row.number, left_ms)] if left_ms else []
    for job_id, index in yard.scheduler.placed_children():
        placed, task = yard.get(JOB, job_id), yard.loop.running(job_id, index)
        if (
            placed
            and placed["jobQueue"] == queue["jobQueueArn"]
            and task is not None
            and task.started_ms
        ):
            found.append((task.job_number, task.started_ms))
    if "schedulingPolicyArn" in queue:
        # Whoever left may have been ahead of anybody.
        return [(-1, left_ms) for _, left_ms in found]
    return found


def _at_position_since(
    yard: EndpointState, job: Document, index: int, departures: list[tuple[int, int]]
) -> int:
    """When it became RUNNABLE, or when the last one ahead of it left."""
    row = yard.loop.row(job["jobId"])
    times: list[int] = [job["createdAt"]]
    for entry in job["dependsOn"]:
        if "jobId" in entry:
            times.append(yard.loop.row(names.split_child(entry["jobId"])[0]).ended_ms or 0)
    if row.attempts:
        times += [attempt.ended_ms for attempt in yard.store.attempts(row.number, child=index)]
    return max(times + [left_ms for number, left_ms in departures if number <= row.number])


# -- what it means ----------------------------------------------------------------------------------------------


def core(yard: EndpointState, document: Document) -> Queue:
    """The scheduler's view of it."""
    order = sorted(document["computeEnvironmentOrder"], key=lambda entry: int(entry["order"]))
    policy = (
        yard.get(POLICY, document["schedulingPolicyArn"])
        if "schedulingPolicyArn" in document
        else None
    )
    return Queue(
        document["jobQueueName"],
        tuple(names.bare(entry["computeEnvironment"]) for entry in order),
        document["priority"],
        document["state"] == "ENABLED",
        None if policy is None else _fair_share(policy),
        tuple(
            TimeLimit(a["reason"], a["maxTimeSeconds"])
            for a in document["jobStateTimeLimitActions"]
        ),
    )


def _fair_share(document: Document) -> FairShare:
    policy = document["fairsharePolicy"]
    entries = policy.get("shareDistribution", [])
    weights = tuple((entry["shareIdentifier"], entry.get("weightFactor", 1.0)) for entry in entries)
    return FairShare(
        weights, policy.get("shareDecaySeconds", 0), policy.get("computeReservation", 0)
    )


def find(yard: EndpointState, name: str) -> Document | None:
    return yard.get(QUEUE, name)


def existing(yard: EndpointState, name: str) -> Document:
    document = find(yard, name)
    if document is None:
        raise InvalidRequestError(f"{name} does not exist")
    return document


def _enter(yard: EndpointState, document: Document) -> None:
    yard.keep(QUEUE, document["jobQueueName"], document)
    yard.save()
    yard.scheduler.set_queue(core(yard, document))


# -- checks -----------------------------------------------------------------------------------------------------


def _checked_order(yard: EndpointState, order: list[Document]) -> tuple[list[Document], bool]:
    """The order with ARNs, and whether its environments are Fargate."""
    if not 1 <= len(order) <= _MOST_ENVIRONMENTS:
        raise InvalidRequestError(
            f"computeEnvironmentOrder must have 1 to {_MOST_ENVIRONMENTS} entries; got {len(order)}"
        )
    if len({entry["order"] for entry in order}) < len(order):
        raise InvalidRequestError(
            "computeEnvironmentOrder must not have two entries of the same order"
        )
    found, kinds, architectures = [], set(), set()
    for entry in order:
        environment = yard.get(ENVIRONMENT, entry["computeEnvironment"])
        if environment is None:
            raise InvalidRequestError(f"{entry['computeEnvironment']} does not exist")
        if environment["status"] != "VALID":
            raise InvalidRequestError(f"{entry['computeEnvironment']} is not VALID")
        kinds.add(environment.get("computeResources", {}).get("type", "EC2").startswith("FARGATE"))
        architectures.add(compute_environments.architecture(environment))
        found.append(
            {"order": entry["order"], "computeEnvironment": environment["computeEnvironmentArn"]}
        )
    if len(kinds) > 1:
        raise InvalidRequestError(
            "computeEnvironmentOrder must not mix EC2 and Fargate compute environments"
        )
    if {"arm64", "x86_64"} <= architectures:
        raise InvalidRequestError(
            "computeEnvironmentOrder must not mix compute environments of x86_64 and of arm64"
        )
    return found, kinds == {True}


def _checked_priority(priority: int) -> int:
    if not 0 <= priority <= _MOST_PRIORITY:
        raise InvalidRequestError(
            f"priority must be between 0 and {_MOST_PRIORITY}; got {priority}"
        )
    return priority


def _checked_limits(actions: list[Document]) -> list[Document]:
    for action in actions:
        if action["reason"] not in _LIMITED_REASONS:
            raise InvalidRequestError(
                f"jobStateTimeLimitActions: reason must be one of {', '.join(_LIMITED_REASONS)}; got {action['reason']}"
            )
        if action["state"] != "RUNNABLE" or action["action"] != "CANCEL":
            raise InvalidRequestError(
                "jobStateTimeLimitActions: state must be RUNNABLE and action CANCEL"
            )
        if not 600 <= action["maxTimeSeconds"] <= 86400:
            raise InvalidRequestError(
                "jobStateTimeLimitActions: maxTimeSeconds must be between 600 and 86400"
            )
    return actions


def _existing_policy(yard: EndpointState, arn: str) -> Document:
    policy = yard.get(POLICY, arn)
    if policy is None:
        raise InvalidRequestError(f"{arn} does not exist")
    return policy
