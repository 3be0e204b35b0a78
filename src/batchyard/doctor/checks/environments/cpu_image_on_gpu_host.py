"""BY020: GPU instances are launched with an image without GPU driver. Also used for templates."""

from __future__ import annotations

from batchyard.doctor.checks.base import (
    InstanceTypes,
    check_types,
    join_names,
    update_resources_command,
)
from batchyard.doctor.facts import Environment
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY020", Severity.ERROR, 85, "GPU instances get a GPU image")


def examine(environment: Environment, types: InstanceTypes) -> Findings:
    gpu_types = [t.name for t in types if t.gpus]
    images = environment.image_types
    # Without an image type, AWS Batch chooses its GPU image for GPU types.
    if not gpu_types or not images or environment.image_id:
        return
    if any("NVIDIA" in image for image in images):
        return
    yield Finding(
        KIND,
        f"{environment.name} launches GPU instances with an image that has no GPU driver",
        (f"imageType {join_names(images)}; types {join_names(gpu_types)}",),
        (
            update_resources_command(
                environment, "'ec2Configuration=[{imageType=ECS_AL2023_NVIDIA}]'"
            ),
        ),
    )


check = check_types(KIND)(examine)
