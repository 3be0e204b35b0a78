"""The findings about instance types of live compute environments, in templates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from batchyard import ec2_types
from batchyard.doctor.checks.base import InstanceTypes
from batchyard.doctor.checks.environments import (
    architectures_mixed,
    cpu_image_on_gpu_host,
    families_mixed,
    gpu_too_old_for_driver,
    gpus_not_schedulable,
    instance_type_unknown,
    spot_with_single_type,
)
from batchyard.doctor.finding import Findings, Kind, Unseen
from batchyard.doctor.template.checks.base import ENVIRONMENT, TemplateCheck, place_findings
from batchyard.doctor.template.compute_environments import UNKNOWN, find_managed
from batchyard.doctor.template.resources import Resource, Template, function_call

TYPE_PROPERTIES = (
    (ENVIRONMENT, "ComputeResources"),
    (ENVIRONMENT, "ComputeResources.InstanceTypes"),
)
_TYPE_KINDS = (
    families_mixed.KIND,
    gpus_not_schedulable.KIND,
    architectures_mixed.KIND,
    instance_type_unknown.KIND,
)
_IMAGE_KINDS = (cpu_image_on_gpu_host.KIND, gpu_too_old_for_driver.KIND)


def read_instance_types(template: Template, resource: Resource) -> InstanceTypes | None:
    """Return all instance types of an environment; None if one is unknown or not in the list."""
    names = template.texts(resource.get("ComputeResources", "InstanceTypes"))
    if names is None or not all(ec2_types.is_known(name) for name in names):
        return None
    return ec2_types.expand(names)


def find_unlisted_types(template: Template, kinds: tuple[Kind, ...]) -> Iterator[Unseen]:
    """Yield the kinds as not checked for each environment with a type that is in no list."""
    for resource, _ in find_managed(template):
        names = template.known_texts(resource.get("ComputeResources", "InstanceTypes"))
        unlisted = [name for name in names if ec2_types.is_known(name) is None]
        if unlisted:
            reason = f"{', '.join(unlisted)} of {resource.name} is in no built-in list"
            yield from (Unseen(kind, reason) for kind in kinds)


# -- the types themselves ------------------------------------------------------------------------


def _check_types(template: Template) -> Findings:
    for resource, environment in find_managed(template):
        names = _known_names(template, resource)
        listed = replace(environment, instance_types=tuple(names or ()))
        findings = [*instance_type_unknown.examine(listed)]
        if names is not None:
            types = ec2_types.expand(names)
            findings += families_mixed.examine(environment, types)
            findings += gpus_not_schedulable.examine(environment, types)
            findings += architectures_mixed.examine(environment, types)
        yield from place_findings(template, resource, findings)


def _check_images(template: Template) -> Findings:
    for resource, environment in find_managed(template):
        names = _known_names(template, resource)
        if names is None or UNKNOWN in environment.image_types:
            continue
        types = ec2_types.expand(names)
        findings = [*cpu_image_on_gpu_host.examine(environment, types)]
        findings += gpu_too_old_for_driver.examine(environment, types)
        yield from place_findings(template, resource, findings)


def _check_alternatives(template: Template) -> Findings:
    for resource, environment in find_managed(template):
        types = read_instance_types(template, resource)
        # Whoever changes other parameters may change the instance types, too.
        node = resource.get("ComputeResources", "InstanceTypes")
        is_fixed = template.has_default_parameters or function_call(node) is None
        if types is not None and is_fixed:
            findings = spot_with_single_type.examine(environment, types)
            yield from place_findings(template, resource, findings)


def _known_names(template: Template, resource: Resource) -> list[str] | None:
    """Return the known instance types; None if there are some, all of them unknown."""
    node = resource.get("ComputeResources", "InstanceTypes")
    names = template.known_texts(node)
    # Without instance types AWS Batch uses its defaults.
    return names if names or node.is_empty else None


check_types = TemplateCheck(
    _TYPE_KINDS,
    _check_types,
    TYPE_PROPERTIES,
    lambda template: find_unlisted_types(template, _TYPE_KINDS),
)
check_images = TemplateCheck(
    _IMAGE_KINDS,
    _check_images,
    (
        *TYPE_PROPERTIES,
        (ENVIRONMENT, "ComputeResources.Ec2Configuration"),
        (ENVIRONMENT, "ComputeResources.Ec2Configuration.*.ImageType"),
    ),
    lambda template: find_unlisted_types(template, _IMAGE_KINDS),
)
check_alternatives = TemplateCheck(
    (spot_with_single_type.KIND,),
    _check_alternatives,
    (*TYPE_PROPERTIES, (ENVIRONMENT, "ComputeResources.Type")),
    lambda template: find_unlisted_types(template, (spot_with_single_type.KIND,)),
)
