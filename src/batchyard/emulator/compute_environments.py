"""Compute environments (facts, 8): the operations, and what one means to the scheduler."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence

from batchyard.batch.jobs import Resources
from batchyard.batch.queues import ComputeEnvironment
from batchyard.emulator import names
from batchyard.emulator.api_errors import InvalidRequestError
from batchyard.emulator.paging import page, size_of_page
from batchyard.emulator.state import ENVIRONMENT, QUEUE, Document, EndpointState

#: what `optimal` and an empty list stand for (facts, 8.3); none of them has GPUs
_MAGIC_FAMILIES = {
    "optimal": ("m6i", "c6i", "r6i", "c7i"),
    "default_x86_64": ("m6i", "c6i", "r6i", "c7i"),
    "default_arm64": ("m6g", "c6g", "r6g", "c7g"),
}
_STRATEGIES = {
    "EC2": ("BEST_FIT", "BEST_FIT_PROGRESSIVE", "BEST_FIT_PROGRESSIVE_ORDERED"),
    "SPOT": (
        "BEST_FIT",
        "BEST_FIT_PROGRESSIVE",
        "SPOT_CAPACITY_OPTIMIZED",
        "SPOT_CAPACITY_OPTIMIZED_PRIORITIZED",
        "SPOT_PRICE_CAPACITY_OPTIMIZED",
    ),
}
_FARGATE = ("FARGATE", "FARGATE_SPOT")
_EC2_ONLY = (
    "allocationStrategy",
    "minvCpus",
    "desiredvCpus",
    "instanceTypes",
    "imageId",
    "ec2KeyPair",
    "instanceRole",
    "bidPercentage",
    "spotIamFleetRole",
    "launchTemplate",
    "ec2Configuration",
    "placementGroup",
)
#: what may change without new instances (facts, 8.10)
_SCALING_MEMBERS = frozenset(["minvCpus", "maxvCpus", "desiredvCpus", "scalingPolicy"])
#: Batch gives no new environment on its own Amazon Linux 2 images any more (facts, 8.4)
_ENDED_IMAGES = ("ECS_AL2", "ECS_AL2_NVIDIA")
#: Graviton's, as `m6g`, `c7gn`, `g5g`: there is a g behind the number
_ARM_FAMILY = re.compile(r"a1|[a-z]+[0-9]+[a-z-]*g.*")
_SCALE_DOWN_DELAYS = range(20, 10080 + 1)
_UNLIMITED_MIB = 2**40
_SERVICE_LINKED_ROLE = "role/aws-service-role/batch.amazonaws.com/AWSServiceRoleForBatch"
_NO_SCALE_DOWN = (
    "Manually scaling down compute environment is not supported.  Disconnecting job queues from compute environment "
    "will cause it to scale-down to minvCpus."
)


def create(yard: EndpointState, request: Document) -> Document:
    name = names.require_name("computeEnvironmentName", request["computeEnvironmentName"])
    if yard.get(ENVIRONMENT, name) is not None:
        raise InvalidRequestError("Object already exists")
    if "eksConfiguration" in request:
        raise InvalidRequestError(
            "this endpoint runs jobs on ECS-type compute; eksConfiguration is not for it"
        )
    is_managed = request["type"] == "MANAGED"
    resources = request.get("computeResources")
    if is_managed and resources is None:
        raise InvalidRequestError(
            "computeResources must be provided for a MANAGED compute environment"
        )
    if not is_managed and "serviceRole" not in request:
        raise InvalidRequestError(
            "serviceRole must be provided for an UNMANAGED compute environment"
        )
    if not is_managed and resources is not None:
        raise InvalidRequestError(
            "computeResources must not be provided for an UNMANAGED compute environment"
        )
    if is_managed and "unmanagedvCpus" in request:
        raise InvalidRequestError("unmanagedvCpus is only for an UNMANAGED compute environment")
    identity = uuid.uuid4()
    arn = yard.arn(ENVIRONMENT, name)
    document: Document = {
        "computeEnvironmentName": name,
        "computeEnvironmentArn": arn,
        "ecsClusterArn": f"arn:aws:ecs:{yard.region}:{names.ACCOUNT_ID}:cluster/AWSBatch-{name}-{identity}",
        "tags": request.get("tags", {}),
        "type": request["type"],
        "state": request.get("state", "ENABLED"),
        "status": "VALID",
        "statusReason": "ComputeEnvironment Healthy",
        "serviceRole": request.get(
            "serviceRole", f"arn:aws:iam::{names.ACCOUNT_ID}:{_SERVICE_LINKED_ROLE}"
        ),
        "updatePolicy": {"terminateJobsOnUpdate": False, "jobExecutionTimeoutMinutes": 30},
        "containerOrchestrationType": "ECS",
        "uuid": str(identity),
    }
    if resources is not None:
        document["computeResources"] = _with_defaults(yard, _checked(yard, resources))
    if "unmanagedvCpus" in request:
        document["unmanagedvCpus"] = request["unmanagedvCpus"]
    _enter(yard, document)
    return {"computeEnvironmentName": name, "computeEnvironmentArn": arn}


def update(yard: EndpointState, request: Document) -> Document:
    document = dict(_existing(yard, request["computeEnvironment"]))
    change = request.get("computeResources", {})
    if change:
        if document["type"] != "MANAGED":
            raise InvalidRequestError(
                "computeResources can only be updated for a MANAGED compute environment"
            )
        document["computeResources"] = _updated(yard, document, change)
    if _is_service_linked(
        request.get("serviceRole", document["serviceRole"])
    ) != _is_service_linked(document["serviceRole"]):
        raise InvalidRequestError(
            "a service-linked role cannot be exchanged for another role, nor the other way round"
        )
    for member in ("state", "serviceRole", "unmanagedvCpus"):
        if member in request:
            document[member] = request[member]
    document["updatePolicy"] = document["updatePolicy"] | request.get("updatePolicy", {})
    _enter(yard, document)
    return {
        "computeEnvironmentName": document["computeEnvironmentName"],
        "computeEnvironmentArn": document["computeEnvironmentArn"],
    }


def delete(yard: EndpointState, request: Document) -> Document:
    document = yard.get(ENVIRONMENT, request["computeEnvironment"])
    if document is None:
        return {}
    if document["state"] != "DISABLED":
        raise InvalidRequestError("Cannot delete, compute environment must be disabled first")
    arn = document["computeEnvironmentArn"]
    for queue in yard.all(QUEUE):
        if any(entry["computeEnvironment"] == arn for entry in queue["computeEnvironmentOrder"]):
            raise InvalidRequestError("Cannot delete, found existing JobQueue relationship")
    yard.forget(ENVIRONMENT, document["computeEnvironmentName"])
    yard.save()
    return {}


def describe(yard: EndpointState, request: Document) -> Document:
    wanted = request.get("computeEnvironments")
    if wanted is not None and len(wanted) > 100:
        raise InvalidRequestError("Maximum number of compute environments supported is 100.")
    found = yard.all(ENVIRONMENT)
    if wanted:
        bare = [names.bare(name) for name in wanted]
        found = [document for document in found if document["computeEnvironmentName"] in bare]
    some, token = page(found, size_of_page(request, 100), request.get("nextToken"))
    return {"computeEnvironments": list(some), **({"nextToken": token} if token else {})}


# -- what it means ----------------------------------------------------------------------------------------------


def core(yard: EndpointState, document: Document) -> ComputeEnvironment:
    """The scheduler's view of it."""
    name = document["computeEnvironmentName"]
    is_enabled = document["state"] == "ENABLED" and document["status"] == "VALID"
    resources = document.get("computeResources")
    if resources is None:
        # Its instances are the owner's: here, this machine.
        return ComputeEnvironment(name, yard.machine, is_enabled=is_enabled)
    offers: tuple[Resources, ...] = ()
    gpus = 0
    if resources["type"] not in _FARGATE:
        offers = _largest(yard, resources["instanceTypes"])
        gpus = max((offer.gpus for offer in offers), default=0)
    # GPUs and memory are bounded by the instances and by this machine, not by the environment.
    most = Resources(
        resources["maxvCpus"], _UNLIMITED_MIB, max(gpus, yard.machine.gpus) if gpus else 0
    )
    return ComputeEnvironment(name, most, offers, is_enabled)


def architecture(document: Document) -> str | None:
    """arm64 or x86_64; None where that is for others to say: Fargate, and one's own instances."""
    resources = document.get("computeResources")
    if resources is None or resources["type"] in _FARGATE:
        return None
    return "arm64" if any(map(_is_arm, resources["instanceTypes"])) else "x86_64"


def smallest_type(yard: EndpointState, document: Document, wanted: Resources) -> str | None:
    """The type that a job is on which has its host for itself: of those that it fits, the smallest, and of equal ones
    the first. None where that is for others to say: Fargate, and one's own instances."""
    resources = document.get("computeResources")
    if resources is None or resources["type"] in _FARGATE:
        return None
    fitting = [
        ((offer.gpus, offer.vcpus, offer.memory_mib), name)
        for name in _types(yard, resources["instanceTypes"])
        if (offer := yard.instance_type(name)) is not None and wanted.fits_in(offer)
    ]
    return min(fitting, key=lambda one: one[0])[1] if fitting else None


def _is_arm(name: str) -> bool:
    return name == "default_arm64" or bool(_ARM_FAMILY.fullmatch(name.partition(".")[0]))


def _is_service_linked(role: str) -> bool:
    return role.endswith(_SERVICE_LINKED_ROLE)


def _enter(yard: EndpointState, document: Document) -> None:
    yard.keep(ENVIRONMENT, document["computeEnvironmentName"], document)
    yard.save()
    yard.scheduler.set_environment(core(yard, document))


def _largest(yard: EndpointState, instance_types: Sequence[str]) -> tuple[Resources, ...]:
    """What the types offer, without those that another one surpasses in everything."""
    offers = set()
    for name in _types(yard, instance_types):
        offer = yard.instance_type(name)
        assert offer is not None
        offers.add(offer)
    return tuple(
        one for one in offers if not any(one != other and one.fits_in(other) for other in offers)
    )


def _types(yard: EndpointState, wanted: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name in wanted or ("optimal",):
        if "." in name:
            if yard.instance_type(name) is None:
                raise InvalidRequestError(
                    f"Instance type can only be one of those that the region knows; got {name!r}"
                )
            found.append(name)
            continue
        for family in _MAGIC_FAMILIES.get(name, (name,)):
            types = yard.instance_family(family)
            if not types:
                raise InvalidRequestError(
                    f"Instance family can only be one that the region knows; got {name!r}"
                )
            found += types
    return found


# -- checks -----------------------------------------------------------------------------------------------------


def _checked(yard: EndpointState, resources: Document) -> Document:
    kind = resources["type"]
    if kind not in _STRATEGIES and kind not in _FARGATE:
        raise InvalidRequestError(f"this endpoint has EC2, SPOT and Fargate; {kind} is not for it")
    if kind in _FARGATE:
        for member in _EC2_ONLY:
            if member in resources:
                raise InvalidRequestError(
                    f"computeResources.{member} is not for {kind} compute environments"
                )
        if not resources.get("securityGroupIds"):
            raise InvalidRequestError(
                f"computeResources.securityGroupIds must be provided for {kind}"
            )
    else:
        _check_ec2(yard, resources)
    if not resources.get("subnets"):
        raise InvalidRequestError("computeResources.subnets must not be empty")
    _check_range(resources, "maxvCpus", 1 if kind in _FARGATE else 0)
    _check_range(resources, "minvCpus", 0)
    least, most = resources.get("minvCpus", 0), resources["maxvCpus"]
    if least > most:
        raise InvalidRequestError(f"minvCpus ({least}) must not be more than maxvCpus ({most})")
    if not least <= resources.get("desiredvCpus", least) <= most:
        raise InvalidRequestError(
            f"desiredvCpus must be between minvCpus ({least}) and maxvCpus ({most})"
        )
    return resources


def _check_ec2(yard: EndpointState, resources: Document) -> None:
    kind = resources["type"]
    strategy = resources.get("allocationStrategy", "BEST_FIT")
    if strategy not in _STRATEGIES[kind]:
        raise InvalidRequestError(
            f"allocationStrategy {strategy} is not for computeResources of type {kind}"
        )
    if "instanceRole" not in resources:
        raise InvalidRequestError(
            "computeResources.instanceRole must be provided: the name or ARN of an instance profile"
        )
    if kind == "SPOT" and strategy == "BEST_FIT" and "spotIamFleetRole" not in resources:
        raise InvalidRequestError(
            "computeResources.spotIamFleetRole must be provided for SPOT with BEST_FIT"
        )
    if "bidPercentage" in resources:
        if kind != "SPOT":
            raise InvalidRequestError("computeResources.bidPercentage is only for SPOT")
        _check_range(resources, "bidPercentage", 1, 100)
    template = resources.get("launchTemplate")
    if template is not None and ("launchTemplateId" in template) == (
        "launchTemplateName" in template
    ):
        raise InvalidRequestError(
            "launchTemplate must have either launchTemplateId or launchTemplateName"
        )
    if not resources.get("securityGroupIds") and template is None:
        raise InvalidRequestError(
            "computeResources.securityGroupIds must be provided, here or in a launch template"
        )
    configurations = resources.get("ec2Configuration", [])
    if len(configurations) > 2:
        raise InvalidRequestError("computeResources.ec2Configuration must have at most 2 entries")
    for configuration in configurations:
        if configuration["imageType"] in _ENDED_IMAGES and "imageIdOverride" not in configuration:
            raise InvalidRequestError(
                f"imageType {configuration['imageType']} is not supported for new compute environments; use "
                f"{configuration['imageType'].replace('AL2', 'AL2023')}"
            )
    delay = resources.get("scalingPolicy", {}).get("minScaleDownDelayMinutes", 0)
    if delay and delay not in _SCALE_DOWN_DELAYS:
        raise InvalidRequestError(
            f"minScaleDownDelayMinutes must be between 20 and 10080, or 0 for none; got {delay}"
        )
    _types(yard, resources.get("instanceTypes", []))
    if len({_is_arm(name) for name in resources.get("instanceTypes", [])}) > 1:
        raise InvalidRequestError("computeResources.instanceTypes must not mix x86_64 and arm64")


def _check_range(resources: Document, member: str, least: int, most: int | None = None) -> None:
    value = resources.get(member)
    if value is None:
        return
    if value < least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"between {least} and {most}"
        raise InvalidRequestError(f"computeResources.{member} must be {bounds}; got {value}")


def _with_defaults(yard: EndpointState, resources: Document) -> Document:
    if resources["type"] in _FARGATE:
        return resources
    least = resources.get("minvCpus", 0)
    has_gpus = any(offer.gpus for offer in _largest(yard, resources.get("instanceTypes", [])))
    defaults = {
        "allocationStrategy": "BEST_FIT",
        "minvCpus": least,
        "desiredvCpus": least,
        "instanceTypes": ["optimal"],
        "ec2Configuration": [{"imageType": "ECS_AL2023_NVIDIA" if has_gpus else "ECS_AL2023"}],
    }
    return defaults | {name: value for name, value in resources.items() if value != []}


def _updated(yard: EndpointState, document: Document, change: Document) -> Document:
    """computeResources after the change; scaling, or what asks for new instances (facts, 8.10)."""
    old = document["computeResources"]
    if "desiredvCpus" in change and change["desiredvCpus"] < old.get("desiredvCpus", 0):
        raise InvalidRequestError(_NO_SCALE_DOWN)
    if (change.get("type", old["type"]) in _FARGATE) != (old["type"] in _FARGATE):
        raise InvalidRequestError("a compute environment cannot change between EC2 and Fargate")
    if set(change) - _SCALING_MEMBERS and old["type"] not in _FARGATE:
        if not _is_service_linked(document["serviceRole"]):
            raise InvalidRequestError(
                "an infrastructure update needs the service-linked role AWSServiceRoleForBatch"
            )
        if old["allocationStrategy"] == "BEST_FIT":
            raise InvalidRequestError(
                "an infrastructure update is not possible with allocationStrategy BEST_FIT"
            )
    kept = {name: value for name, value in change.items() if name != "updateToLatestImageVersion"}
    return _with_defaults(yard, _checked(yard, old | kept))


def _existing(yard: EndpointState, name: str) -> Document:
    document = yard.get(ENVIRONMENT, name)
    if document is None:
        raise InvalidRequestError(f"{name} does not exist")
    return document
