"""Read the compute environments of a template as the checks of live ones expect them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from batchyard.doctor.facts import Environment
from batchyard.doctor.template.checks.base import ENVIRONMENT
from batchyard.doctor.template.resources import Resource, Template

#: Stands for an unknown value; it differs from everything that a check looks for.
UNKNOWN = "(open)"


def find_managed(template: Template) -> Iterator[tuple[Resource, Environment]]:
    """Yield the managed compute environments on EC2."""
    for resource in template.of_type(ENVIRONMENT):
        environment = _read_environment(template, resource)
        if environment.is_managed and not environment.is_fargate and environment.kind != UNKNOWN:
            yield resource, environment


def _read_environment(template: Template, resource: Resource) -> Environment:
    images = resource.get("ComputeResources", "Ec2Configuration").items
    has_override = any(image.get("ImageIdOverride") for image in images)
    image_types = (template.text_of(image, "ImageType") for image in images)
    is_managed = (template.text(resource.get("Type")) or "MANAGED").upper() != "UNMANAGED"
    types = template.texts(resource.get("ComputeResources", "InstanceTypes"))
    return Environment(
        resource.name,
        is_managed=is_managed and not resource.get("ComputeResources").is_empty,
        kind=_read_text(template, resource, "Type", "EC2").upper(),
        strategy=_read_text(template, resource, "AllocationStrategy").upper(),
        instance_types=tuple(types or ()),
        image_types=tuple(image_type or UNKNOWN for image_type in image_types),
        image_id=_read_text(template, resource, "ImageId", UNKNOWN if has_override else ""),
        bid_percentage=template.number(resource.get("ComputeResources", "BidPercentage")),
    )


def _read_text(template: Template, resource: Resource, key: str, default: str = "") -> str:
    """Return a text of ComputeResources, the default if it is missing, or UNKNOWN."""
    node = resource.get("ComputeResources", key)
    text = template.text(node)
    if text is None and not node.is_empty:
        return UNKNOWN
    return text or default
