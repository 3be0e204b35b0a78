"""BY056: containers cannot reach the instance metadata service. Also used for templates."""

from __future__ import annotations

from batchyard.doctor.checks.base import check_launch_templates
from batchyard.doctor.finding import Finding, Findings, Kind, Severity

KIND = Kind("BY056", Severity.WARNING, 20, "containers can reach the metadata service")


def examine(hop_limit: int | None) -> Findings:
    if hop_limit != 1:
        return
    yield Finding(
        KIND,
        "the launch template prevents containers from reaching the metadata service",
        ("HttpPutResponseHopLimit 1; a container in bridge mode needs 2",),
        ("set HttpPutResponseHopLimit: 2 in the launch template, or leave it to the image",),
    )


check = check_launch_templates(KIND)(lambda template: examine(template.hop_limit))
