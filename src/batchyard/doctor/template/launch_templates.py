"""Find the launch templates that compute environments use, and whose hosts they start. Pure."""

from __future__ import annotations

import re

from batchyard.doctor.template.resources import NOTHING, Resource, Template
from batchyard.doctor.template.terraform_references import remove_indexes
from batchyard.yaml_positions import Node

BATCH, ECS = "batch", "ecs"
#: Resources that groups of instances are started from.
LAUNCH_TYPES = (
    "AWS::EC2::LaunchTemplate",
    "AWS::AutoScaling::LaunchConfiguration",
    "AWS::EC2::SpotFleet",
)
_NAME_KEYS = ("LaunchTemplateName", "LaunchTemplateId")
_AMAZON_LINUX_2 = re.compile(r"/amazon-linux-2(?!\d)|/amzn2-ami-")


def find_owners(template: Template) -> dict[str, str]:
    """Return launch template -> "batch" if a compute environment uses it, else "ecs".

    The result is empty if the template has nothing to do with containers. Whoever starts the hosts
    of an UNMANAGED environment tells them their cluster: those are hosts of plain ECS.
    """
    is_about_containers = any(
        resource.type.startswith(("AWS::ECS::", "AWS::Batch::")) for resource in template.resources
    )
    if not is_about_containers:
        return {}
    used = {
        name
        for environment in template.of_type("AWS::Batch::ComputeEnvironment")
        for name in _names_used_by(template, environment)
    }
    return {
        resource.name: BATCH if {resource.name, remove_indexes(resource.name)} & used else ECS
        for resource in template.of_type(*LAUNCH_TYPES)
    }


def _names_used_by(template: Template, environment: Resource) -> set[str]:
    """Return the names and Terraform addresses of an environment's launch templates."""
    if (template.text(environment.get("Type")) or "").upper() == "UNMANAGED":
        return set()
    targets = (find_launch_template(template, node) for node in launch_nodes(environment))
    names = {target.name for target in targets if target}
    return names | terraform_references_of(environment)


def launch_nodes(environment: Resource) -> list[Node]:
    """Return the LaunchTemplate property of a compute environment, and its overrides."""
    node = environment.get("ComputeResources", "LaunchTemplate")
    return [node, *(node.get("Overrides") or NOTHING).items]


def find_launch_template(template: Template, launch_node: Node) -> Resource | None:
    """Return the resource of this template that a LaunchTemplate property names."""
    for node in filter(None, map(launch_node.get, _NAME_KEYS)):
        target = template.find(template.target_name(node))
        if target is not None:
            return target
        # Equal texts are equal names, even if the name of the stack in them is unknown.
        text = template.lines(node).text or "-"
        for resource in template.of_type(*LAUNCH_TYPES):
            if text in (template.lines(resource.get(key)).text for key in _NAME_KEYS):
                return resource
    return None


def is_amazon_linux_2(ssm_path: str) -> bool:
    """Return whether the image at this path in SSM is one of Amazon Linux 2."""
    return _AMAZON_LINUX_2.search(ssm_path) is not None


def terraform_references_of(resource: Resource) -> set[str]:
    """Return the addresses that the Terraform configuration of the resource refers to."""
    return {node.text or "" for node in resource.get("References").items}
