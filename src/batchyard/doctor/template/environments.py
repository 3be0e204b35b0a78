"""Checks of the compute environments in a template: those of a live one, and those of how it is written. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from batchyard.doctor import catalogue
from batchyard.doctor.checks.base import InstanceTypes
from batchyard.doctor.checks.environments import (
    amazon_linux_2,
    architectures_mixed,
    best_fit_strategy,
    cpu_image_on_gpu_host,
    families_mixed,
    gpu_too_old_for_driver,
    gpus_not_schedulable,
    instance_type_unknown,
    spot_with_single_type,
)
from batchyard.doctor.checks.fit.kinds import NO_GPUS
from batchyard.doctor.checks.launches import spot_bid_too_low
from batchyard.doctor.facts import Environment
from batchyard.doctor.finding import Finding
from batchyard.doctor.template import others
from batchyard.doctor.template.kinds import (
    DESIRED_VCPUS_SET,
    FIXED_NAME_WITH_REPLACEMENT,
    LAUNCH_TEMPLATE_CHANGES_IGNORED,
    ROLE_INSTEAD_OF_PROFILE,
)
from batchyard.doctor.template.resources import NOTHING, Resource, Template, function
from batchyard.yaml_positions import Node

ENVIRONMENT = "AWS::Batch::ComputeEnvironment"
#: stands where a value cannot be known, and is equal to nothing that is looked for
OPEN = "(open)"


def environment_of(template: Template, resource: Resource) -> Environment:
    def text(*path: str) -> str:
        node = resource.get("ComputeResources", *path)
        found = template.text(node)
        return found if found is not None else (OPEN if _is_given(node) else "")

    images = resource.get("ComputeResources", "Ec2Configuration").items
    managed = (template.text(resource.get("Type")) or "MANAGED").upper() != "UNMANAGED"
    overrides = [image.get("ImageIdOverride") for image in images]
    return Environment(
        resource.name,
        is_managed=managed and not resource.get("ComputeResources").is_empty,
        kind=(text("Type") or "EC2").upper(),
        strategy=text("AllocationStrategy").upper(),
        instance_types=tuple(
            template.texts(resource.get("ComputeResources", "InstanceTypes")) or ()
        ),
        image_types=tuple(
            template.text(image.get("ImageType") or NOTHING) or OPEN for image in images
        ),
        image_id=text("ImageId") or (OPEN if any(overrides) else ""),
        bid_percentage=template.number(resource.get("ComputeResources", "BidPercentage")),
    )


def _is_given(node: Node) -> bool:
    return not node.is_empty or function(node) is not None


def examine(template: Template) -> Iterator[Finding]:
    for resource in template.of_type(ENVIRONMENT):
        for finding in _of_one(template, resource):
            yield replace(finding, place=template.place(resource))
        yield from _as_written(template, resource)
    yield from _gpu_jobs_without_gpus(template)


def _of_one(template: Template, resource: Resource) -> Iterator[Finding]:
    environment = environment_of(template, resource)
    if not environment.is_managed or environment.is_fargate or environment.kind == OPEN:
        return
    yield from best_fit_strategy.examine(environment)
    yield from spot_bid_too_low.examine_bid(environment)
    yield from amazon_linux_2.examine(environment)
    yield from _old_image_by_path(template, resource, environment)
    node = resource.get("ComputeResources", "InstanceTypes")
    known, names = template.known(node), template.texts(node)
    yield from instance_type_unknown.examine(replace(environment, instance_types=tuple(known)))
    # With none given AWS Batch takes its defaults, unless they are open.
    if known or not _is_given(node):
        yield from _of_some_types(environment, catalogue.expand(known))
    if names is not None and all(catalogue.is_known(name) for name in names):
        yield from _without_gpus(environment, catalogue.expand(names))
        # Who does not take the defaults of some parameters may choose other types, too.
        if template.is_by_default or function(node) is None:
            yield from spot_with_single_type.examine(environment, catalogue.expand(names))


def _old_image_by_path(
    template: Template, resource: Resource, environment: Environment
) -> Iterator[Finding]:
    images = resource.get("ComputeResources", "Ec2Configuration").items
    overrides = [image.get("ImageIdOverride") for image in images]
    for node in (resource.get("ComputeResources", "ImageId"), *filter(None, overrides)):
        if others.is_amazon_linux_2(path := template.looked_up(node)):
            yield Finding(
                amazon_linux_2.KIND,
                f"{environment.name} uses Amazon Linux 2, whose images get no patches",
                (f"its image is looked up at {path}",),
                (
                    "take the image of Amazon Linux 2023: Ec2Configuration: [{ImageType: ECS_AL2023}]",
                ),
            )


def _of_some_types(environment: Environment, types: InstanceTypes) -> Iterator[Finding]:
    """Whatever other types there may be."""
    yield from families_mixed.examine(environment, types)
    yield from gpus_not_schedulable.examine(environment, types)
    yield from architectures_mixed.examine(environment, types)
    if OPEN not in environment.image_types:
        yield from cpu_image_on_gpu_host.examine(environment, types)
        yield from gpu_too_old_for_driver.examine(environment, types)


def _without_gpus(environment: Environment, types: InstanceTypes) -> Iterator[Finding]:
    if any("NVIDIA" in image for image in environment.image_types) and not any(
        t.gpus for t in types
    ):
        yield Finding(
            NO_GPUS,
            f"{environment.name} takes a GPU image, but none of its instance types has a GPU",
            (
                f"instance types: {', '.join(environment.instance_types)}, 0 GPUs",
                "`optimal` never has any",
            ),
            ("InstanceTypes: [g4dn.xlarge, g5.xlarge, g6.xlarge]",),
        )


def _gpu_jobs_without_gpus(template: Template) -> Iterator[Finding]:
    """A job definition that asks for GPUs, beside environments none of which can have any."""
    environments = template.of_type(ENVIRONMENT)
    if not environments:
        return
    for resource in environments:
        names = template.texts(resource.get("ComputeResources", "InstanceTypes"))
        if names is None or any(catalogue.is_known(n) is not True for n in names):
            return
        if any(t.gpus for t in catalogue.expand(names)):
            return
    for definition in template.of_type("AWS::Batch::JobDefinition"):
        for need in _needs(definition):
            if template.text(need.get("Type") or NOTHING) == "GPU":
                yield Finding(
                    NO_GPUS,
                    "a job definition asks for GPUs, and no compute environment here has any",
                    (f"{len(environments)} compute environments, 0 GPUs",),
                    (
                        "add a compute environment with InstanceTypes: [g4dn.xlarge, g5.xlarge, g6.xlarge]",
                    ),
                    template.place(definition, need),
                )


def _needs(definition: Resource) -> Iterator[Node]:
    """What a job asks for: of its one container, of several, or of the nodes of a multi-node job."""
    nodes = definition.get("NodeProperties", "NodeRangeProperties").items
    inner = [Resource(definition.name, definition.type, node) for node in nodes]
    for one in (definition, *inner):
        tasks = one.get("EcsProperties", "TaskProperties").items
        several = [
            container for task in tasks for container in (task.get("Containers") or NOTHING).items
        ]
        for container in (one.get("ContainerProperties"), one.get("Container"), *several):
            yield from (container.get("ResourceRequirements") or NOTHING).items


# -- how it is written --------------------------------------------------------------------------------------------


def _as_written(template: Template, resource: Resource) -> Iterator[Finding]:
    yield from _role_for_profile(template, resource)
    yield from _desired(template, resource)
    yield from _hidden_changes(template, resource)
    yield from _fixed_name(template, resource)


def _role_for_profile(template: Template, resource: Resource) -> Iterator[Finding]:
    node = resource.get("ComputeResources", "InstanceRole")
    target = template.named(template.referred(node))
    text = template.lines(node).text
    if ":role/" in text or (target and target.type == "AWS::IAM::Role"):
        yield Finding(
            ROLE_INSTEAD_OF_PROFILE,
            "InstanceRole is given a role; it takes an instance profile",
            (f"InstanceRole is {f'{target.name}, an AWS::IAM::Role' if target else text}",),
            (
                "add an AWS::IAM::InstanceProfile with this role, and write InstanceRole: !GetAtt Profile.Arn",
            ),
            template.place(resource, node),
        )


def _desired(template: Template, resource: Resource) -> Iterator[Finding]:
    node = resource.get("ComputeResources", "DesiredvCpus")
    minimum = template.number(resource.get("ComputeResources", "MinvCpus")) or 0
    wanted = template.number(node)
    # Terraform's plans carry the value of the moment; there only one above the minimum was written by hand.
    if not _is_given(node) or (
        template.kind == "Terraform" and (wanted is None or wanted <= minimum)
    ):
        return
    yield Finding(
        DESIRED_VCPUS_SET,
        "DesiredvCpus is AWS Batch's own dial: an update that sets it back fails, or ends running instances",
        (f"DesiredvCpus {wanted if wanted is not None else 'is set'}",),
        ("delete the line",),
        template.place(resource, node),
    )


def _hidden_changes(template: Template, resource: Resource) -> Iterator[Finding]:
    for node in others.launches(resource) if template.kind != "Terraform" else ():
        given = node.get("Version") or NOTHING
        version = template.lines(given).text
        own = others.launched(template, node)
        # The default version is whatever somebody made it outside of the template.
        if own and version in ("", "$Latest", "$Default", f"__{own.name}_DefaultVersionNumber__"):
            yield Finding(
                LAUNCH_TEMPLATE_CHANGES_IGNORED,
                "a change of the launch template does not reach the environment: the version is looked up only once",
                (
                    f"Version {version.strip('_').replace('_', '.') or 'not given, which means $Default'}",
                ),
                (f"Version: !GetAtt {own.name}.LatestVersionNumber",),
                template.place(resource, node),
            )


def _fixed_name(template: Template, resource: Resource) -> Iterator[Finding]:
    node = resource.get("ComputeEnvironmentName")
    replaces = resource.get("ReplaceComputeEnvironment")
    # What is given, and open, may well be false.
    is_false = (
        template.text(replaces) or ("false" if _is_given(replaces) else "")
    ).lower() == "false"
    if not _is_given(node) or template.kind == "Terraform" or is_false:
        return
    yield Finding(
        FIXED_NAME_WITH_REPLACEMENT,
        "most changes replace the environment, and a second one of the same name cannot be made",
        ("ComputeEnvironmentName is set, ReplaceComputeEnvironment is not false",),
        ("delete ComputeEnvironmentName, or write ReplaceComputeEnvironment: false",),
        template.place(resource, node),
    )
