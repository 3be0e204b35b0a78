"""Which function answers which operation of AWS Batch. Listed by hand; what is not here is refused by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from batchyard.emulator import (
    compute_environments,
    consumables,
    describing,
    job_definitions,
    job_queues,
    jobs,
    scheduling_policies,
    shapes,
    tagging,
)
from batchyard.emulator.failures import ClientException
from batchyard.emulator.yard import Document, Yard

Operation = Callable[[Yard, Document], Document]

OPERATIONS: dict[str, Operation] = {
    "CreateComputeEnvironment": compute_environments.create,
    "UpdateComputeEnvironment": compute_environments.update,
    "DeleteComputeEnvironment": compute_environments.delete,
    "DescribeComputeEnvironments": compute_environments.describe,
    "CreateJobQueue": job_queues.create,
    "UpdateJobQueue": job_queues.update,
    "DeleteJobQueue": job_queues.delete,
    "DescribeJobQueues": job_queues.describe,
    "GetJobQueueSnapshot": job_queues.snapshot,
    "CreateSchedulingPolicy": scheduling_policies.create,
    "UpdateSchedulingPolicy": scheduling_policies.update,
    "DeleteSchedulingPolicy": scheduling_policies.delete,
    "DescribeSchedulingPolicies": scheduling_policies.describe,
    "ListSchedulingPolicies": scheduling_policies.list_all,
    "RegisterJobDefinition": job_definitions.register,
    "DeregisterJobDefinition": job_definitions.deregister,
    "DescribeJobDefinitions": job_definitions.describe,
    "SubmitJob": jobs.submit,
    "CancelJob": jobs.cancel,
    "CancelJobs": jobs.cancel_all,
    "TerminateJob": jobs.terminate,
    "TerminateJobs": jobs.terminate_all,
    "DescribeJobs": describing.describe,
    "ListJobs": describing.list_jobs,
    "CreateConsumableResource": consumables.create,
    "UpdateConsumableResource": consumables.update,
    "DeleteConsumableResource": consumables.delete,
    "DescribeConsumableResource": consumables.describe,
    "ListConsumableResources": consumables.list_all,
    "ListJobsByConsumableResource": consumables.list_jobs,
    "TagResource": tagging.tag,
    "UntagResource": tagging.untag,
    "ListTagsForResource": tagging.list_all,
}


def perform(yard: Yard, operation: str, request: dict[str, Any]) -> Document:
    """Checks the request against AWS's description of the operation, and carries it out. Raises ApiError."""
    act = OPERATIONS.get(operation)
    if act is None:
        raise ClientException(
            f"{operation} is not an operation of batchyard's AWS Batch endpoint, which serves ECS-type compute"
        )
    shape = shapes.service("batch").operation_model(operation).input_shape
    shapes.check(shape, request)
    known: Document = shapes.known(shape, request)
    job_definitions.check_tags(known.get("tags", {}))
    return act(yard, known)
