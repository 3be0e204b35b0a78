"""BY022 in templates: hosts start from Amazon Linux 2."""

from __future__ import annotations

from collections.abc import Iterator

from batchyard.doctor.checks.environments import amazon_linux_2
from batchyard.doctor.finding import Finding, Findings
from batchyard.doctor.template import launch_templates
from batchyard.doctor.template.checks.base import ENVIRONMENT, check_template, place_findings
from batchyard.doctor.template.compute_environments import find_managed
from batchyard.doctor.template.resources import Resource, Template
from batchyard.yaml_positions import Node


@check_template(
    amazon_linux_2.KIND,
    properties=(
        (ENVIRONMENT, "ComputeResources"),
        (ENVIRONMENT, "ComputeResources.ImageId"),
        (ENVIRONMENT, "ComputeResources.Ec2Configuration"),
        (ENVIRONMENT, "ComputeResources.Ec2Configuration.*.ImageType"),
        (ENVIRONMENT, "ComputeResources.Ec2Configuration.*.ImageIdOverride"),
        ("AWS::EC2::LaunchTemplate", "LaunchTemplateData.ImageId"),
    ),
)
def check(template: Template) -> Findings:
    for resource, environment in find_managed(template):
        yield from place_findings(template, resource, amazon_linux_2.examine(environment))
        for path in _find_old_paths(template, _environment_images(resource)):
            yield Finding(
                amazon_linux_2.KIND,
                f"{environment.name} uses Amazon Linux 2, whose images get no patches",
                (f"its image is looked up at {path}",),
                (
                    "use the image of Amazon Linux 2023:"
                    " Ec2Configuration: [{ImageType: ECS_AL2023}]",
                ),
                template.place(resource),
            )
    owners = launch_templates.find_owners(template)
    for resource in template.of_type(*launch_templates.LAUNCH_TYPES):
        if resource.name in owners:
            yield from _check_launch_template(template, resource)


def _check_launch_template(template: Template, resource: Resource) -> Findings:
    specifications = resource.get("SpotFleetRequestConfigData", "LaunchSpecifications").items
    sources = (resource.get("LaunchTemplateData"), resource.properties, *specifications)
    for image in filter(None, (source.get("ImageId") for source in sources)):
        for path in _find_old_paths(template, [image]):
            yield Finding(
                amazon_linux_2.KIND,
                f"{resource.name} launches Amazon Linux 2, whose images get no patches",
                (f"ImageId is looked up at {path}",),
                (
                    "use the path of Amazon Linux 2023:"
                    " /aws/service/ecs/optimized-ami/amazon-linux-2023/...",
                ),
                template.place(resource, image),
            )


def _environment_images(resource: Resource) -> list[Node]:
    configurations = resource.get("ComputeResources", "Ec2Configuration").items
    overrides = (configuration.get("ImageIdOverride") for configuration in configurations)
    return [resource.get("ComputeResources", "ImageId"), *filter(None, overrides)]


def _find_old_paths(template: Template, images: list[Node]) -> Iterator[str]:
    return filter(launch_templates.is_amazon_linux_2, map(template.ssm_path, images))
