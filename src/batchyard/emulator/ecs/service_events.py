"""Events of EventBridge about services: "ECS Deployment State Change" and "ECS Service Action".

They wait in the state of ECS until the next tick sends them.
"""

from __future__ import annotations

from batchyard.emulator.ecs.records import Deployment, EcsEvent, Service
from batchyard.emulator.state import EndpointState

#: Rollout state of a deployment -> (eventType, eventName).
_DEPLOYMENT_EVENTS = {
    "IN_PROGRESS": ("INFO", "SERVICE_DEPLOYMENT_IN_PROGRESS"),
    "COMPLETED": ("INFO", "SERVICE_DEPLOYMENT_COMPLETED"),
    "FAILED": ("ERROR", "SERVICE_DEPLOYMENT_FAILED"),
}
#: eventName -> eventType.
_ACTIONS = {
    "SERVICE_STEADY_STATE": "INFO",
    "SERVICE_TASK_START_IMPAIRED": "WARN",
    "SERVICE_TASK_PLACEMENT_FAILURE": "ERROR",
}


def report_deployment(state: EndpointState, service: Service, deployment: Deployment) -> None:
    """Report the rollout state of a deployment, which has just changed."""
    event_type, name = _DEPLOYMENT_EVENTS[deployment.rollout_state]
    detail = {
        "eventType": event_type,
        "eventName": name,
        "deploymentId": deployment.id,
        "updatedAt": deployment.updated_s,
        "reason": deployment.rollout_reason,
    }
    event = EcsEvent("ECS Deployment State Change", service.arn, detail)
    state.ecs.events_to_send.append(event)


def report_action(state: EndpointState, service: Service, name: str, reason: str = "") -> None:
    """Report what the scheduler of a service has noticed; ``name`` is the eventName."""
    detail = {
        "eventType": _ACTIONS[name],
        "eventName": name,
        "clusterArn": service.cluster.arn,
        "createdAt": state.clock(),
    }
    if reason:
        detail["reason"] = reason
    state.ecs.events_to_send.append(EcsEvent("ECS Service Action", service.arn, detail))
