"""The operations that the endpoint answers itself, by service. moto answers all others.

To add an operation, write its function in the module of its subject and add a line here:
docs/how-to/add-an-endpoint-operation.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from batchyard.emulator import (
    api_models,
    compute_environments,
    consumable_resources,
    ecs_clusters,
    ecs_tasks,
    job_cancellation,
    job_definitions,
    job_descriptions,
    job_lists,
    job_queues,
    job_submission,
    log_groups,
    log_operations,
    queue_snapshots,
    scheduling_policies,
    tags,
)
from batchyard.emulator.api_errors import ApiError, InvalidRequestError
from batchyard.emulator.ecs import (
    account_settings,
    attributes,
    capacity_providers,
    clusters,
    instances,
    lifecycle,
    service_requests,
    task_definitions,
    task_requests,
)
from batchyard.emulator.ecs import tags as ecs_tags
from batchyard.emulator.state import Document, EndpointState

#: Performs a request that fits its model. Raises ApiError. Returns None to leave it to moto.
Operation = Callable[[EndpointState, Document], Document | None]
#: Returns the answer of moto (third argument) with the endpoint's own entries.
Addition = Callable[[EndpointState, Document, Document], Document]

#: Operations that moto performs, also on the log groups of jobs.
_MOTO_LOG_OPERATIONS = (
    "PutRetentionPolicy",
    "DeleteRetentionPolicy",
    "CreateLogStream",
    "PutLogEvents",
    "TagLogGroup",
    "UntagLogGroup",
    "ListTagsLogGroup",
    "TagResource",
    "UntagResource",
    "ListTagsForResource",
    "PutSubscriptionFilter",
    "DescribeSubscriptionFilters",
    "DeleteSubscriptionFilter",
    "PutMetricFilter",
    "DescribeMetricFilters",
    "DeleteMetricFilter",
    "CreateExportTask",
    "DescribeQueries",
)

#: Service, as in signatures -> operation -> function.
OPERATIONS: dict[str, dict[str, Operation]] = {
    "batch": {
        "CreateComputeEnvironment": compute_environments.create,
        "UpdateComputeEnvironment": compute_environments.update,
        "DeleteComputeEnvironment": compute_environments.delete,
        "DescribeComputeEnvironments": compute_environments.describe,
        "CreateJobQueue": job_queues.create,
        "UpdateJobQueue": job_queues.update,
        "DeleteJobQueue": job_queues.delete,
        "DescribeJobQueues": job_queues.describe,
        "GetJobQueueSnapshot": queue_snapshots.get_snapshot,
        "CreateSchedulingPolicy": scheduling_policies.create,
        "UpdateSchedulingPolicy": scheduling_policies.update,
        "DeleteSchedulingPolicy": scheduling_policies.delete,
        "DescribeSchedulingPolicies": scheduling_policies.describe,
        "ListSchedulingPolicies": scheduling_policies.list_policies,
        "RegisterJobDefinition": job_definitions.register,
        "DeregisterJobDefinition": job_definitions.deregister,
        "DescribeJobDefinitions": job_definitions.describe,
        "SubmitJob": job_submission.submit,
        "CancelJob": job_cancellation.cancel_job,
        "CancelJobs": job_cancellation.cancel_jobs,
        "TerminateJob": job_cancellation.terminate_job,
        "TerminateJobs": job_cancellation.terminate_jobs,
        "DescribeJobs": job_descriptions.describe,
        "ListJobs": job_lists.list_jobs,
        "CreateConsumableResource": consumable_resources.create,
        "UpdateConsumableResource": consumable_resources.update,
        "DeleteConsumableResource": consumable_resources.delete,
        "DescribeConsumableResource": consumable_resources.describe,
        "ListConsumableResources": consumable_resources.list_resources,
        "ListJobsByConsumableResource": consumable_resources.list_jobs,
        "TagResource": tags.tag,
        "UntagResource": tags.untag,
        "ListTagsForResource": tags.list_tags,
    },
    "ecs": {
        "ListContainerInstances": ecs_clusters.list_container_instances,
        "DescribeContainerInstances": ecs_clusters.describe_container_instances,
        "ListTasks": ecs_tasks.list_tasks,
        "DescribeTasks": ecs_tasks.describe_tasks,
        "RegisterContainerInstance": instances.register,
        "UpdateContainerInstancesState": instances.update_state,
        "RegisterTaskDefinition": task_definitions.register,
        "DescribeTaskDefinition": task_definitions.describe,
        "DeregisterTaskDefinition": task_definitions.deregister,
        "DeleteTaskDefinitions": task_definitions.delete,
        "ListTaskDefinitions": task_definitions.list_definitions,
        "ListTaskDefinitionFamilies": task_definitions.list_families,
        "RunTask": task_requests.run_task,
        "StartTask": task_requests.start_task,
        "StopTask": task_requests.stop_task,
        "ExecuteCommand": task_requests.execute_command,
        "CreateService": service_requests.create,
        "UpdateService": service_requests.update,
        "DeleteService": service_requests.delete,
        "DescribeServices": service_requests.describe,
        "ListServices": service_requests.list_services,
        "PutAttributes": attributes.put,
        "DeleteAttributes": attributes.delete,
        "ListAttributes": attributes.list_attributes,
        "CreateCapacityProvider": capacity_providers.create,
        "DescribeCapacityProviders": capacity_providers.describe,
        "CreateCluster": clusters.create,
        "DeleteCluster": clusters.delete,
        "DeregisterContainerInstance": lifecycle.deregister_instance,
        "TagResource": ecs_tags.tag,
        "UntagResource": ecs_tags.untag,
        "ListTagsForResource": ecs_tags.list_tags,
    },
    "logs": {
        "GetLogEvents": log_operations.get_log_events,
        "FilterLogEvents": log_operations.filter_log_events,
        "DescribeLogStreams": log_operations.describe_log_streams,
        "DeleteLogStream": log_operations.delete_log_stream,
        "StartQuery": log_operations.start_query,
        "CreateLogGroup": log_groups.create_log_group,
        "DeleteLogGroup": log_groups.delete_log_group,
        **dict.fromkeys(_MOTO_LOG_OPERATIONS, log_groups.let_moto_answer),
    },
}

#: Service -> operation -> function that adds to moto's answer.
ADDITIONS: dict[str, dict[str, Addition]] = {
    "ecs": {
        "ListClusters": ecs_clusters.add_to_list,
        "DescribeClusters": ecs_clusters.add_to_description,
        "ListAccountSettings": account_settings.add_defaults,
    },
    "logs": {"DescribeLogGroups": log_groups.add_job_log_groups},
}


def has_operation(service: str, operation: str) -> bool:
    return operation in OPERATIONS.get(service, {})


def has_addition(service: str, operation: str) -> bool:
    return operation in ADDITIONS.get(service, {})


def check_request(service: str, operation: str, request: dict[str, Any]) -> Document:
    """Return the members of the request that AWS knows. Raises ApiError if one does not fit."""
    if service == "batch" and not has_operation(service, operation):
        raise InvalidRequestError(
            f"{operation} is not an operation of batchyard's AWS Batch endpoint, "
            "which serves ECS-type compute"
        )
    shape = api_models.service_model(service).operation_model(operation).input_shape
    try:
        api_models.check_shape(shape, request)
    except InvalidRequestError as exc:
        if service == "batch":
            raise
        raise ApiError("InvalidParameterException", exc.message) from None
    checked: Document = api_models.drop_unknown_members(shape, request)
    if service == "batch":
        job_definitions.check_tags(checked.get("tags", {}))
    elif service == "ecs":
        ecs_tags.check_tags(checked.get("tags", []))
    return checked


def perform(
    state: EndpointState, service: str, operation: str, request: Document
) -> Document | None:
    """Perform a checked request. Raises ApiError. Returns None if moto is to answer."""
    if service == "ecs":
        lifecycle.advance(state)
    return OPERATIONS[service][operation](state, request)


def add_to_answer(
    state: EndpointState, service: str, operation: str, request: Document, answer: Document
) -> Document:
    """Return moto's answer to a checked request with the endpoint's own entries."""
    if service == "ecs":
        lifecycle.advance(state)
    return ADDITIONS[service][operation](state, request, answer)
