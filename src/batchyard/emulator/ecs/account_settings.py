"""The defaults of ECS's account settings. moto keeps the settings that clients change."""

from __future__ import annotations

from batchyard.emulator import names
from batchyard.emulator.state import Document, EndpointState

#: Clients ask for the first three before they tag tasks.
_DEFAULTS = {
    "serviceLongArnFormat": "enabled",
    "taskLongArnFormat": "enabled",
    "containerInstanceLongArnFormat": "enabled",
    "awsvpcTrunking": "disabled",
    "containerInsights": "disabled",
    "dualStackIPv6": "disabled",
}


def add_defaults(state: EndpointState, request: Document, answer: Document) -> Document:
    """Add the settings that nobody has changed, if the request asks for those in effect."""
    if not request.get("effectiveSettings") or answer.get("nextToken"):
        return answer
    changed = {entry["name"] for entry in answer["settings"]}
    principal = names.iam_arn(state.region, "root")
    defaults = [
        {"name": name, "value": value, "principalArn": principal, "type": "user"}
        for name, value in _DEFAULTS.items()
        if name not in changed
        and request.get("name") in (None, name)
        and request.get("value") in (None, value)
    ]
    return answer | {"settings": [*answer["settings"], *defaults]}
