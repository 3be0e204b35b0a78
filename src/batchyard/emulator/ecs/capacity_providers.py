"""Operations on capacity providers, which moto keeps; `capacity` scales their groups."""

from __future__ import annotations

from batchyard.emulator import names
from batchyard.emulator.ecs.container_specs import invalid
from batchyard.emulator.ecs.paging import page
from batchyard.emulator.state import Document, EndpointState

#: Those of AWS, which every account has.
_FARGATE = ("FARGATE", "FARGATE_SPOT")
_MAX_DESCRIBED = 10


def create(state: EndpointState, request: Document) -> None:
    """CreateCapacityProvider: refuse what is not served, and leave Auto Scaling groups to moto."""
    if "managedInstancesProvider" in request:
        raise invalid("this endpoint has no Managed Instances; give an autoScalingGroupProvider")
    if "autoScalingGroupProvider" not in request:
        raise invalid("A capacity provider needs an autoScalingGroupProvider.")


def describe(state: EndpointState, request: Document) -> Document:
    """DescribeCapacityProviders. moto 5.2.5 fails without names, and does not know Fargate's."""
    by_name = {
        name: {
            "capacityProviderArn": names.arn("ecs", state.region, f"capacity-provider/{name}"),
            "name": name,
            "status": "ACTIVE",
            "tags": [],
        }
        for name in _FARGATE
    }
    by_name |= {
        document["name"]: document for document in state.ecs.surroundings.describe_providers()
    }
    requested = request.get("capacityProviders") or list(by_name)
    documents = [by_name.get(names.strip_arn(name)) for name in requested]
    has_tags = "TAGS" in request.get("include", [])
    answer = page(
        "capacityProviders",
        [d if has_tags else {**d, "tags": []} for d in documents if d is not None],
        {"maxResults": _MAX_DESCRIBED, **request},
    )
    answer["failures"] = [
        {
            "arn": names.arn("ecs", state.region, f"capacity-provider/{names.strip_arn(name)}"),
            "reason": "MISSING",
        }
        for name, document in zip(requested, documents, strict=True)
        if document is None
    ]
    return answer
