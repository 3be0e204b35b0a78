"""BY021: the GPUs are older than the driver of the image supports. Also used for templates."""

from __future__ import annotations

from batchyard import ec2_types
from batchyard.doctor.checks.base import (
    InstanceTypes,
    check_types,
    join_names,
    update_resources_command,
)
from batchyard.doctor.facts import Environment
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY021", Severity.ERROR, 85, "the driver of the image supports the GPU")


def examine(environment: Environment, types: InstanceTypes) -> Findings:
    old_types = [
        t.name for t in types if ec2_types.family_of(t.name) in ec2_types.TOO_OLD_FOR_AL2023
    ]
    images = environment.image_types
    uses_al2023 = not images or any("AL2023" in image for image in images)
    if not old_types or not uses_al2023 or environment.image_id:
        return
    image = join_names(images) or "ECS_AL2023_NVIDIA (the default)"
    yield Finding(
        KIND,
        f"{environment.name} has GPUs that are too old for the driver "
        "of the Amazon Linux 2023 image",
        (f"imageType {image}; types {join_names(old_types)}",),
        (update_resources_command(environment, "instanceTypes=g4dn.xlarge,g5.xlarge"),),
    )


check = check_types(KIND)(examine)
