"""CreateService, UpdateService, DeleteService, DescribeServices and ListServices."""

from __future__ import annotations

import re
from dataclasses import replace

from batchyard.emulator import names
from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.ecs import clusters, services, task_definitions
from batchyard.emulator.ecs.container_specs import invalid
from batchyard.emulator.ecs.paging import page
from batchyard.emulator.ecs.records import Deployment, Service
from batchyard.emulator.ecs.surroundings import Cluster
from batchyard.emulator.ecs.task_requests import make_request
from batchyard.emulator.ecs.tasks import TaskRequest
from batchyard.emulator.state import Document, EndpointState

_NAME = re.compile(r"[A-Za-z0-9_-]{1,255}")
_MAX_DESCRIBED = 10
#: Members of a service that its description has as they were requested, with their defaults.
_SHOWN: Document = {
    "loadBalancers": [],
    "serviceRegistries": [],
    "placementConstraints": [],
    "placementStrategy": [],
    "schedulingStrategy": "REPLICA",
    "enableECSManagedTags": False,
    "enableExecuteCommand": False,
    "propagateTags": "NONE",
    "deploymentController": {"type": "ECS"},
}
#: Members of UpdateService whose change starts a new deployment.
_DEPLOYED = (
    "taskDefinition",
    "networkConfiguration",
    "capacityProviderStrategy",
    "placementConstraints",
    "placementStrategy",
    "loadBalancers",
    "serviceRegistries",
)


# -- operations -----------------------------------------------------------------------------------


def create(state: EndpointState, request: Document) -> Document:
    cluster = clusters.require_active(state, request)
    name = request["serviceName"]
    if not _NAME.fullmatch(name):
        raise invalid("Service name must be letters, digits, _ and -, up to 255 characters.")
    existing = state.ecs.services.get((cluster.name, name))
    if existing is not None and existing.status != "INACTIVE":
        raise invalid("Creation of service was not idempotent.")
    if "taskDefinition" not in request:
        raise invalid("TaskDefinition cannot be blank.")
    is_daemon = request.get("schedulingStrategy") == "DAEMON"
    if not is_daemon and "desiredCount" not in request:
        raise invalid("The desired count of a REPLICA service must be specified.")
    definition = task_definitions.require_active(state, request["taskDefinition"])
    service = Service(
        name=name,
        arn=names.arn("ecs", state.region, f"service/{cluster.name}/{name}"),
        cluster=cluster,
        request=request,
        desired=_check_desired(request.get("desiredCount", 0)),
        created_s=state.clock(),
        tags=request.get("tags", []),
    )
    _check_configuration(service)
    deployment = services.begin_deployment(state, service, definition)
    make_service_request(state, service, deployment)
    state.ecs.services[cluster.name, name] = service
    return {"service": describe_service(state, service)}


def update(state: EndpointState, request: Document) -> Document:
    service = _require(state, request)
    if service.status != "ACTIVE":
        raise ApiError("ServiceNotActiveException", "Service was not ACTIVE.")
    changes = {
        key: value
        for key, value in request.items()
        if key not in ("cluster", "service", "forceNewDeployment")
    }
    definition = service.primary.definition
    if "taskDefinition" in changes:
        definition = task_definitions.require_active(state, changes["taskDefinition"])
    desired = _check_desired(changes.get("desiredCount", service.desired))
    merged = {**service.request, **changes}
    if "capacityProviderStrategy" in changes:
        merged.pop("launchType", None)
    is_new = definition is not service.primary.definition or any(
        member in changes and changes[member] != service.request.get(member)
        for member in _DEPLOYED
        if member != "taskDefinition"
    )
    is_new = is_new or bool(request.get("forceNewDeployment"))
    # All is checked before the service changes.
    changed = replace(service, request=merged, desired=desired)
    _check_configuration(changed)
    if is_new:
        make_service_request(state, changed, replace(service.primary, definition=definition))
    service.request, service.desired = merged, desired
    if is_new:
        services.begin_deployment(state, service, definition)
    return {"service": describe_service(state, service)}


def delete(state: EndpointState, request: Document) -> Document:
    service = _require(state, request)
    if service.status == "INACTIVE":
        raise ApiError("ServiceNotFoundException", "Service not found.")
    is_daemon = service.request.get("schedulingStrategy") == "DAEMON"
    if service.desired and not is_daemon and not request.get("force"):
        raise invalid("The service cannot be stopped while it is scaled above 0.")
    service.status, service.desired = "DRAINING", 0
    return {"service": describe_service(state, service)}


def describe(state: EndpointState, request: Document) -> Document:
    cluster = clusters.require(state, request)
    requested = request["services"]
    if not 1 <= len(requested) <= _MAX_DESCRIBED:
        raise invalid(f"Services cannot be empty, and must be at most {_MAX_DESCRIBED}.")
    by_name = {name: _find(state, cluster, name) for name in requested}
    return {
        "services": [describe_service(state, service) for service in by_name.values() if service],
        "failures": [
            {"arn": _arn(state, cluster, name), "reason": "MISSING"}
            for name, service in by_name.items()
            if service is None
        ],
    }


def list_services(state: EndpointState, request: Document) -> Document:
    cluster = clusters.require(state, request)
    strategy = request.get("schedulingStrategy")
    arns = [
        service.arn
        for (cluster_name, _), service in state.ecs.services.items()
        if cluster_name == cluster.name
        and service.status != "INACTIVE"
        and strategy in (None, service.request.get("schedulingStrategy", "REPLICA"))
        and request.get("launchType") in (None, service.request.get("launchType", "EC2"))
    ]
    return page("serviceArns", arns, {"maxResults": 10, **request})


def _require(state: EndpointState, request: Document) -> Service:
    service = _find(state, clusters.require(state, request), request["service"])
    if service is None:
        raise ApiError("ServiceNotFoundException", "Service not found.")
    return service


def _find(state: EndpointState, cluster: Cluster, name_or_arn: str) -> Service | None:
    return state.ecs.services.get((cluster.name, names.strip_arn(name_or_arn)))


def _arn(state: EndpointState, cluster: Cluster, name: str) -> str:
    is_arn = name.startswith("arn:")
    return name if is_arn else names.arn("ecs", state.region, f"service/{cluster.name}/{name}")


def _check_desired(count: int) -> int:
    if not 0 <= count <= 5000:
        raise invalid("The desired count must be between 0 and 5000.")
    return count


def _check_configuration(service: Service) -> None:
    controller = service.request.get("deploymentController", {}).get("type", "ECS")
    if controller != "ECS":
        raise invalid(f"this endpoint has the deployment controller ECS, not {controller}")
    minimum, maximum = service.minimum_percent, service.maximum_percent
    if not 0 <= minimum <= 100 or not 100 <= maximum <= 10_000 or (minimum, maximum) == (100, 100):
        raise invalid(
            "Both maximumPercent and minimumHealthyPercent cannot be 100 as this will block "
            "deployments, maximumPercent is at least 100, and minimumHealthyPercent at most 100."
        )


# -- tasks of a service ---------------------------------------------------------------------------


def make_service_request(
    state: EndpointState, service: Service, deployment: Deployment
) -> TaskRequest:
    """Return the request for the tasks of a deployment. Raises ApiError."""
    tags = service.tags if service.request.get("propagateTags") == "SERVICE" else []
    if service.request.get("enableECSManagedTags"):
        tags = [*tags, {"key": "aws:ecs:serviceName", "value": service.name}]
    members = (
        "launchType",
        "capacityProviderStrategy",
        "networkConfiguration",
        "placementConstraints",
        "placementStrategy",
        "enableECSManagedTags",
        "propagateTags",
        "enableExecuteCommand",
    )
    request = {member: service.request[member] for member in members if member in service.request}
    if service.request.get("schedulingStrategy") == "DAEMON":
        constraints = [*request.get("placementConstraints", []), {"type": "distinctInstance"}]
        request["placementConstraints"] = constraints
    request |= {"group": f"service:{service.name}", "startedBy": deployment.id, "tags": tags}
    return make_request(state, service.cluster, deployment.definition, request)


# -- descriptions ---------------------------------------------------------------------------------


def describe_service(state: EndpointState, service: Service) -> Document:
    tasks = services.tasks_of(state, service)
    counts = services.count_tasks(tasks)
    document: Document = {
        **{member: service.request.get(member, value) for member, value in _SHOWN.items()},
        "serviceArn": service.arn,
        "serviceName": service.name,
        "clusterArn": service.cluster.arn,
        "status": service.status,
        "desiredCount": services.desired_count(state, service),
        "runningCount": counts.running,
        "pendingCount": counts.pending,
        "taskDefinition": service.request["taskDefinition"],
        "deploymentConfiguration": {
            "maximumPercent": service.maximum_percent,
            "minimumHealthyPercent": service.minimum_percent,
            "deploymentCircuitBreaker": {"enable": False, "rollback": False}
            | service.configuration.get("deploymentCircuitBreaker", {}),
        },
        "deployments": [
            _describe_deployment(state, service, deployment) for deployment in service.deployments
        ],
        "events": service.events,
        "createdAt": service.created_s,
        "tags": service.tags,
        **_capacity(service),
    }
    if service.deployments:
        document["taskDefinition"] = service.primary.definition["taskDefinitionArn"]
    if "networkConfiguration" in service.request:
        document["networkConfiguration"] = service.request["networkConfiguration"]
    return document


def _capacity(service: Service) -> Document:
    strategy = service.request.get("capacityProviderStrategy")
    if strategy or ("launchType" not in service.request and service.cluster.default_strategy):
        return {"capacityProviderStrategy": strategy or service.cluster.default_strategy}
    return {"launchType": service.request.get("launchType", "EC2")}


def _describe_deployment(
    state: EndpointState, service: Service, deployment: Deployment
) -> Document:
    tasks = services.tasks_of(state, service)
    counts = services.count_tasks(tasks, deployment.id)
    desired = services.desired_count(state, service) if deployment.status == "PRIMARY" else 0
    return {
        "id": deployment.id,
        "status": deployment.status,
        "taskDefinition": deployment.definition["taskDefinitionArn"],
        "desiredCount": desired,
        "pendingCount": counts.pending,
        "runningCount": counts.running,
        "failedTasks": deployment.failed_tasks,
        "createdAt": deployment.created_s,
        "updatedAt": deployment.updated_s,
        "rolloutState": deployment.rollout_state,
        "rolloutStateReason": deployment.rollout_reason,
        **_capacity(service),
    }
