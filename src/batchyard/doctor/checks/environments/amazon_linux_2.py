"""BY022: the environment uses Amazon Linux 2. Also used for templates."""

from __future__ import annotations

from batchyard.doctor.checks.base import check_environments, join_names, update_resources_command
from batchyard.doctor.facts import Environment
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY022", Severity.WARNING, 35, "the image is not Amazon Linux 2")


def examine(environment: Environment) -> Findings:
    old_images = [
        image for image in environment.image_types if "_AL2" in image and "AL2023" not in image
    ]
    if not old_images:
        return
    new_image = old_images[0].replace("_AL2", "_AL2023")
    yield Finding(
        KIND,
        f"{environment.name} uses Amazon Linux 2, whose images get no patches; "
        "AWS Batch refuses new environments",
        (f"imageType {join_names(old_images)}; refused since 2026-06-30",),
        (update_resources_command(environment, f"'ec2Configuration=[{{imageType={new_image}}}]'"),),
    )


check = check_environments(KIND)(lambda environment, facts: examine(environment))
