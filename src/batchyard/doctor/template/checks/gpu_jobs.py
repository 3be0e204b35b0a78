"""BY017 in templates: jobs need GPUs that no compute environment has, or an image expects them."""

from __future__ import annotations

from collections.abc import Iterator

from batchyard import ec2_types
from batchyard.doctor.checks.fit.kinds import NO_GPUS
from batchyard.doctor.finding import Finding, Findings, Unseen
from batchyard.doctor.template.checks.base import ENVIRONMENT, JOB_DEFINITION, TemplateCheck
from batchyard.doctor.template.checks.instance_types import (
    TYPE_PROPERTIES,
    find_unlisted_types,
    read_instance_types,
)
from batchyard.doctor.template.compute_environments import find_managed
from batchyard.doctor.template.resources import NOTHING, Resource, Template
from batchyard.yaml_positions import Node

_REMEDY = "InstanceTypes: [g4dn.xlarge, g5.xlarge, g6.xlarge]"


def find(template: Template) -> Findings:
    for resource, environment in find_managed(template):
        types = read_instance_types(template, resource)
        has_gpu_image = any("NVIDIA" in image for image in environment.image_types)
        if types is None or not has_gpu_image or any(kind.gpus for kind in types):
            continue
        yield Finding(
            NO_GPUS,
            f"{environment.name} uses a GPU image, but none of its instance types has a GPU",
            (
                f"instance types: {', '.join(environment.instance_types)}, 0 GPUs",
                "`optimal` never has any",
            ),
            (_REMEDY,),
            template.place(resource),
        )
    yield from _check_job_definitions(template)


def _check_job_definitions(template: Template) -> Findings:
    environments = template.of_type(ENVIRONMENT)
    if not environments or any(_may_have_gpus(template, resource) for resource in environments):
        return
    for definition in template.of_type(JOB_DEFINITION):
        for requirement in _find_requirements(definition):
            if template.text_of(requirement, "Type") == "GPU":
                yield Finding(
                    NO_GPUS,
                    "a job definition requests GPUs, and no compute environment of the template"
                    " has any",
                    (f"{len(environments)} compute environments, 0 GPUs",),
                    (f"add a compute environment with {_REMEDY}",),
                    template.place(definition, requirement),
                )


def _may_have_gpus(template: Template, resource: Resource) -> bool:
    names = template.texts(resource.get("ComputeResources", "InstanceTypes"))
    if names is None or any(ec2_types.is_known(name) is not True for name in names):
        return True
    return any(kind.gpus for kind in ec2_types.expand(names))


def _find_requirements(definition: Resource) -> Iterator[Node]:
    """Yield the ResourceRequirements of all containers, those of multi-node jobs included."""
    ranges = definition.get("NodeProperties", "NodeRangeProperties").items
    for properties in (definition.properties, *ranges):
        for container in _find_containers(properties):
            yield from (container.get("ResourceRequirements") or NOTHING).items


def _find_containers(properties: Node) -> Iterator[Node]:
    yield properties.get("ContainerProperties") or NOTHING
    yield properties.get("Container") or NOTHING
    tasks = (properties.get("EcsProperties") or NOTHING).get("TaskProperties") or NOTHING
    for task in tasks.items:
        yield from (task.get("Containers") or NOTHING).items


def _find_unchecked(template: Template) -> Iterator[Unseen]:
    return find_unlisted_types(template, (NO_GPUS,))


check = TemplateCheck(
    (NO_GPUS,),
    find,
    (
        *TYPE_PROPERTIES,
        (JOB_DEFINITION, "ContainerProperties.ResourceRequirements.*.Type"),
    ),
    _find_unchecked,
)
