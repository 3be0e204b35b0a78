"""The computeResources of a compute environment: checks, defaults and instance types (facts, 8)."""

from __future__ import annotations

from collections.abc import Sequence

from batchyard import ec2_types
from batchyard.batch.jobs import Resources
from batchyard.emulator.api_errors import InvalidRequestError, RequestExecutionError
from batchyard.emulator.state import Document, EndpointState

FARGATE_TYPES = ("FARGATE", "FARGATE_SPOT")
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
_EC2_MEMBERS = (
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
    "tags",
)
#: Member -> how many entries Fargate takes, and AWS's noun for them.
_FARGATE_MAXIMA = {"securityGroupIds": (5, "security groups"), "subnets": (16, "subnets")}
#: Members that can change without new instances (facts, 8.10).
_SCALING_MEMBERS = frozenset(["minvCpus", "maxvCpus", "desiredvCpus", "scalingPolicy"])
#: AWS Batch creates no environments with its Amazon Linux 2 images any more (facts, 8.4).
_ENDED_IMAGE_TYPES = ("ECS_AL2", "ECS_AL2_NVIDIA")
_MAX_EC2_CONFIGURATIONS = 2
_SCALE_DOWN_DELAYS_MIN = range(20, 10080 + 1)
_NO_SCALE_DOWN = (
    "Manually scaling down compute environment is not supported.  Disconnecting job queues from "
    "compute environment will cause it to scale-down to minvCpus."
)


def complete(state: EndpointState, resources: Document) -> Document:
    """Check new computeResources and return them with AWS's defaults.

    Raises InvalidRequestError.
    """
    _check(state, resources)
    if resources["type"] in FARGATE_TYPES:
        return resources
    min_vcpus = resources.get("minvCpus", 0)
    offers = largest_offers(state, resources.get("instanceTypes", []))
    has_gpus = any(offer.gpus for offer in offers)
    defaults = {
        "allocationStrategy": "BEST_FIT",
        "minvCpus": min_vcpus,
        "desiredvCpus": min_vcpus,
        "instanceTypes": ["optimal"],
        "ec2Configuration": [{"imageType": "ECS_AL2023_NVIDIA" if has_gpus else "ECS_AL2023"}],
        "tags": {},
    }
    completed = defaults | {name: value for name, value in resources.items() if value != []}
    if "launchTemplate" in completed:
        completed["launchTemplate"] = {"overrides": [], **completed["launchTemplate"]}
    return completed


def update(
    state: EndpointState, old: Document, change: Document, *, has_service_linked_role: bool
) -> Document:
    """Return computeResources after an UpdateComputeEnvironment (facts, 8.10).

    Raises InvalidRequestError if the change is invalid or needs instances that AWS cannot replace.
    """
    if "desiredvCpus" in change and change["desiredvCpus"] < old.get("desiredvCpus", 0):
        raise InvalidRequestError(_NO_SCALE_DOWN)
    is_fargate = old["type"] in FARGATE_TYPES
    if (change.get("type", old["type"]) in FARGATE_TYPES) != is_fargate:
        raise InvalidRequestError("a compute environment cannot change between EC2 and Fargate")
    if is_infrastructure_update(change) and not is_fargate:
        if not has_service_linked_role:
            raise InvalidRequestError(
                "an infrastructure update needs the service-linked role AWSServiceRoleForBatch"
            )
        if old["allocationStrategy"] == "BEST_FIT":
            raise InvalidRequestError(
                "an infrastructure update is not possible with allocationStrategy BEST_FIT"
            )
    members = {key: value for key, value in change.items() if key != "updateToLatestImageVersion"}
    # The number of vCPUs changes with the jobs, and need not fit the new limits.
    old_members = {key: value for key, value in old.items() if key != "desiredvCpus"}
    return complete(state, old_members | members)


def is_infrastructure_update(change: Document) -> bool:
    """Return whether a change of computeResources needs new instances."""
    return bool(set(change) - _SCALING_MEMBERS)


# -- instance types -------------------------------------------------------------------------------


def instance_types(state: EndpointState, type_names: Sequence[str]) -> list[str]:
    """Return the instance types that types, families and `optimal` stand for.

    Raises InvalidRequestError for an unknown name.
    """
    types: list[str] = []
    for name in type_names or ("optimal",):
        types += _expand_type_name(state, name)
    return types


def _expand_type_name(state: EndpointState, name: str) -> list[str]:
    if "." in name:
        if ec2_types.registered_resources(name) is None:
            raise InvalidRequestError(
                f"Instance type can only be one of those that the region knows; got {name!r}"
            )
        return [name]
    types: list[str] = []
    for family in ec2_types.WORDS.get(name, (name,)):
        family_types = ec2_types.list_family(family)
        if not family_types:
            raise InvalidRequestError(
                f"Instance family can only be one that the region knows; got {name!r}"
            )
        types += family_types
    return types


def largest_offers(state: EndpointState, type_names: Sequence[str]) -> tuple[Resources, ...]:
    """Return the resources of the types, without those that fit in the resources of another."""
    offers = {
        offer
        for name in instance_types(state, type_names)
        if (offer := ec2_types.registered_resources(name)) is not None
    }
    return tuple(
        offer
        for offer in offers
        if not any(offer != larger and offer.fits_in(larger) for larger in offers)
    )


# -- checks ---------------------------------------------------------------------------------------


def _check(state: EndpointState, resources: Document) -> None:
    kind = resources["type"]
    if kind in FARGATE_TYPES:
        _check_fargate(resources)
    elif kind in _STRATEGIES:
        _check_ec2(state, resources)
    else:
        raise InvalidRequestError(f"this endpoint has EC2, SPOT and Fargate; {kind} is not for it")
    if not resources.get("subnets"):
        raise InvalidRequestError("computeResources.subnets must not be empty")
    _check_vcpus(resources)


def _check_vcpus(resources: Document) -> None:
    _check_range(resources, "maxvCpus", 1 if resources["type"] in FARGATE_TYPES else 0)
    _check_range(resources, "minvCpus", 0)
    min_vcpus, max_vcpus = resources.get("minvCpus", 0), resources["maxvCpus"]
    if min_vcpus > max_vcpus:
        raise InvalidRequestError(
            f"minvCpus ({min_vcpus}) must not be more than maxvCpus ({max_vcpus})"
        )
    if not min_vcpus <= resources.get("desiredvCpus", min_vcpus) <= max_vcpus:
        raise RequestExecutionError("desiredvCpus should be between minvCpus and maxvCpus.")


def _check_fargate(resources: Document) -> None:
    for member in _EC2_MEMBERS:
        if resources.get(member) not in (None, {}, []):
            raise RequestExecutionError(f"{member} is not applicable for Fargate.")
    if not resources.get("securityGroupIds"):
        raise RequestExecutionError("Security group ids are required.")
    for member, (maximum, noun) in _FARGATE_MAXIMA.items():
        if len(resources.get(member, [])) > maximum:
            raise RequestExecutionError(f"Fargate supports a maximum of {maximum} {noun}.")


def _check_ec2(state: EndpointState, resources: Document) -> None:
    _check_allocation(resources)
    _check_launch_template(resources)
    _check_images(resources)
    delay_min = resources.get("scalingPolicy", {}).get("minScaleDownDelayMinutes", 0)
    if delay_min and delay_min not in _SCALE_DOWN_DELAYS_MIN:
        raise InvalidRequestError(
            f"minScaleDownDelayMinutes must be between 20 and 10080, or 0 for none; got {delay_min}"
        )
    type_names = resources.get("instanceTypes", [])
    instance_types(state, type_names)
    if len({ec2_types.is_arm(name) for name in type_names}) > 1:
        raise InvalidRequestError("computeResources.instanceTypes must not mix x86_64 and arm64")


def _check_allocation(resources: Document) -> None:
    kind = resources["type"]
    strategy = resources.get("allocationStrategy", "BEST_FIT")
    if strategy not in _STRATEGIES[kind]:
        raise InvalidRequestError(
            f"allocationStrategy {strategy} is not for computeResources of type {kind}"
        )
    if "instanceRole" not in resources:
        raise RequestExecutionError("Instance role is required.")
    if "minvCpus" not in resources:
        raise RequestExecutionError("Resource minvCpus is required.")
    if kind == "SPOT" and strategy == "BEST_FIT" and "spotIamFleetRole" not in resources:
        raise RequestExecutionError("compute resource spotIamFleetRole is required.")
    # AWS accepts bidPercentage for EC2, where it has no effect.
    if kind == "SPOT" and not 0 <= resources.get("bidPercentage", 100) <= 100:
        raise RequestExecutionError("Bid percentage must be between 0 to 100.")


def _check_launch_template(resources: Document) -> None:
    template = resources.get("launchTemplate")
    if template is None:
        if not resources.get("securityGroupIds"):
            raise RequestExecutionError("Security group ids are required.")
        return
    if ("launchTemplateId" in template) == ("launchTemplateName" in template):
        raise RequestExecutionError(
            "One of LaunchTemplateId and LaunchTemplateName or LaunchTemplate.overrides should be "
            "provided"
        )


def _check_images(resources: Document) -> None:
    configurations = resources.get("ec2Configuration", [])
    if len(configurations) > _MAX_EC2_CONFIGURATIONS:
        raise InvalidRequestError("computeResources.ec2Configuration must have at most 2 entries")
    for configuration in configurations:
        image_type = configuration["imageType"]
        if image_type in _ENDED_IMAGE_TYPES and "imageIdOverride" not in configuration:
            raise InvalidRequestError(
                f"imageType {image_type} is not supported for new compute environments; use "
                f"{image_type.replace('AL2', 'AL2023')}"
            )


def _check_range(
    resources: Document, member: str, minimum: int, maximum: int | None = None
) -> None:
    value = resources.get(member)
    if value is None:
        return
    if value < minimum or (maximum is not None and value > maximum):
        bounds = f"at least {minimum}" if maximum is None else f"between {minimum} and {maximum}"
        raise InvalidRequestError(f"computeResources.{member} must be {bounds}; got {value}")
