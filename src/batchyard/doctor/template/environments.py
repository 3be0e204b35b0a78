"""Checks of the compute environments in a template: those of a live one, and those of how it is written. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from batchyard.doctor import catalogue
from batchyard.doctor.checks import hardware
from batchyard.doctor.checks.hardware import Types
from batchyard.doctor.facts import Environment
from batchyard.doctor.finding import Finding
from batchyard.doctor.kinds import KINDS
from batchyard.doctor.template.resources import Resource, Template, function
from batchyard.doctor.yaml_tree import Node

ENVIRONMENT = "AWS::Batch::ComputeEnvironment"
#: stands where a value cannot be known, and is equal to nothing that is looked for
OPEN = "(open)"


def environment_of(template: Template, resource: Resource) -> Environment:
    def text(*path: str) -> str:
        node = resource.get("ComputeResources", *path)
        found = template.text(node)
        return found if found is not None else (OPEN if _is_given(node) else "")

    images = resource.get("ComputeResources", "Ec2Configuration").items()
    managed = (template.text(resource.get("Type")) or "MANAGED").upper() != "UNMANAGED"
    overrides = [image.get("ImageIdOverride") for image in images]
    return Environment(
        resource.name,
        is_managed=managed and bool(resource.get("ComputeResources").value),
        kind=(text("Type") or "EC2").upper(),
        strategy=text("AllocationStrategy").upper(),
        instance_types=tuple(template.texts(resource.get("ComputeResources", "InstanceTypes")) or ()),
        image_types=tuple(template.text(image.get("ImageType") or Node("")) or OPEN for image in images),
        image_id=text("ImageId") or (OPEN if any(overrides) else ""),
        bid_percentage=template.number(resource.get("ComputeResources", "BidPercentage")),
    )


def _is_given(node: Node) -> bool:
    return bool(node.value) or function(node) is not None


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
    yield from hardware.best_fit(environment)
    yield from hardware.low_bid(environment)
    yield from hardware.old_image(environment)
    names = template.texts(resource.get("ComputeResources", "InstanceTypes"))
    if names is None or OPEN in environment.image_types:
        return
    yield from hardware.existing_types(environment)
    types = catalogue.expand(names)
    if not all(catalogue.is_known(name) for name in names):
        return
    yield from _of_types(environment, types)


def _of_types(environment: Environment, types: Types) -> Iterator[Finding]:
    for look in (
        hardware.mixed_families,
        hardware.unschedulable,
        hardware.image_for_gpus,
        hardware.driver_for_gpus,
        hardware.one_architecture,
        hardware.alternatives,
    ):
        yield from look(environment, types)
    if any("NVIDIA" in image for image in environment.image_types) and not any(t.gpus for t in types):
        yield Finding(
            KINDS[17],
            f"{environment.name} takes a GPU image, but none of its instance types has a GPU",
            (f"instance types: {', '.join(environment.instance_types)}, 0 GPUs", "`optimal` never has any"),
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
        for need in definition.get("ContainerProperties", "ResourceRequirements").items():
            if template.text(need.get("Type") or Node("")) == "GPU":
                yield Finding(
                    KINDS[17],
                    "a job definition asks for GPUs, and no compute environment here has any",
                    (f"{len(environments)} compute environments, 0 GPUs",),
                    ("add a compute environment with InstanceTypes: [g4dn.xlarge, g5.xlarge, g6.xlarge]",),
                    template.place(definition, need),
                )


# -- how it is written --------------------------------------------------------------------------------------------


def _as_written(template: Template, resource: Resource) -> Iterator[Finding]:
    yield from _role_for_profile(template, resource)
    yield from _desired(template, resource)
    yield from _hidden_changes(template, resource)
    yield from _fixed_name(template, resource)


def _role_for_profile(template: Template, resource: Resource) -> Iterator[Finding]:
    node = resource.get("ComputeResources", "InstanceRole")
    target = template.named(template.referred(node))
    text = template.text(node) or ""
    if ":role/" in text or (target and target.type == "AWS::IAM::Role"):
        yield Finding(
            KINDS[204],
            "InstanceRole is given a role; it takes an instance profile",
            (f"InstanceRole is {text or f'{target.name}, an AWS::IAM::Role' if target else text}",),
            ("add an AWS::IAM::InstanceProfile with this role, and write InstanceRole: !GetAtt Profile.Arn",),
            template.place(resource, node),
        )


def _desired(template: Template, resource: Resource) -> Iterator[Finding]:
    node = resource.get("ComputeResources", "DesiredvCpus")
    minimum = template.number(resource.get("ComputeResources", "MinvCpus")) or 0
    wanted = template.number(node)
    # Terraform's plans carry the value of the moment; there only one above the minimum was written by hand.
    if not _is_given(node) or (template.kind == "Terraform" and (wanted is None or wanted <= minimum)):
        return
    yield Finding(
        KINDS[205],
        "DesiredvCpus is AWS Batch's own dial: an update that sets it back fails, or ends running instances",
        (f"DesiredvCpus {wanted if wanted is not None else 'is set'}",),
        ("delete the line",),
        template.place(resource, node),
    )


def _hidden_changes(template: Template, resource: Resource) -> Iterator[Finding]:
    node = resource.get("ComputeResources", "LaunchTemplate")
    version = template.text(node.get("Version") or Node({}))
    is_own = template.named(template.referred(node.get("LaunchTemplateId") or Node("")))
    is_fixed = node.get("Version") is not None and version not in ("$Latest", "$Default")
    if not is_own or is_fixed or template.kind == "Terraform":
        return
    yield Finding(
        KINDS[206],
        "a change of the launch template does not reach the environment: the version is looked up only once",
        (f"Version {version or 'not given, which means $Default'}",),
        (f"Version: !GetAtt {is_own.name}.LatestVersionNumber",),
        template.place(resource, node),
    )


def _fixed_name(template: Template, resource: Resource) -> Iterator[Finding]:
    node = resource.get("ComputeEnvironmentName")
    replaces = resource.get("ReplaceComputeEnvironment")
    if not _is_given(node) or template.kind == "Terraform" or (template.text(replaces) or "").lower() == "false":
        return
    yield Finding(
        KINDS[207],
        "most changes replace the environment, and a second one of the same name cannot be made",
        ("ComputeEnvironmentName is set, ReplaceComputeEnvironment is not false",),
        ("delete ComputeEnvironmentName, or write ReplaceComputeEnvironment: false",),
        template.place(resource, node),
    )
