"""Which function answers which operation of AWS Batch. Listed by hand; what is not here is refused by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from batchyard.emulator import (
    api_models,
    compute_environments,
    consumable_resources,
    job_definitions,
    job_descriptions,
    job_queues,
    job_submission,
    scheduling_policies,
    tags,
)
from batchyard.emulator.api_errors import InvalidRequestError
from batchyard.emulator.state import Document, EndpointState

Operation = Callable[[EndpointState, Document], Document]

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
    "SubmitJob": job_submission.submit,
    "CancelJob": job_submission.cancel,
    "CancelJobs": job_submission.cancel_all,
    "TerminateJob": job_submission.terminate,
    "TerminateJobs": job_submission.terminate_all,
    "DescribeJobs": job_descriptions.describe,
    "ListJobs": job_descriptions.list_jobs,
    "CreateConsumableResource": consumable_resources.create,
    "UpdateConsumableResource": consumable_resources.update,
    "DeleteConsumableResource": consumable_resources.delete,
    "DescribeConsumableResource": consumable_resources.describe,
    "ListConsumableResources": consumable_resources.list_all,
    "ListJobsByConsumableResource": consumable_resources.list_jobs,
    "TagResource": tags.tag,
    "UntagResource": tags.untag,
    "ListTagsForResource": tags.list_all,
}


def perform(yard: EndpointState, operation: str, request: dict[str, Any]) -> Document:
    """Checks the request against AWS's description of the operation, and carries it out. Raises ApiError."""
    act = OPERATIONS.get(operation)
    if act is None:
        raise InvalidRequestError(
            f"{operation} is not an operation of batchyard's AWS Batch endpoint, which serves ECS-type compute"
        )
    shape = api_models.service_model("batch").operation_model(operation).input_shape
    api_models.check_shape(shape, request)
    known: Document = api_models.drop_unknown_members(shape, request)
    job_definitions.check_tags(known.get("tags", {}))
    return act(yard, known)
