"""BY205: the template sets DesiredvCpus, which AWS Batch changes all the time."""

from __future__ import annotations

from batchyard.doctor.finding import Finding, Findings, Kind, Severity
from batchyard.doctor.template.checks.base import ENVIRONMENT, check_template
from batchyard.doctor.template.resources import Template

KIND = Kind("BY205", Severity.WARNING, 45, "desiredvCpus is left to AWS Batch")


@check_template(KIND, properties=((ENVIRONMENT, "ComputeResources"),))
def check(template: Template) -> Findings:
    for resource in template.of_type(ENVIRONMENT):
        node = resource.get("ComputeResources", "DesiredvCpus")
        desired = template.number(node)
        minimum = template.number(resource.get("ComputeResources", "MinvCpus")) or 0
        # A plan of Terraform contains the current value; one above the minimum was written by hand.
        is_current = template.kind == "Terraform" and (desired is None or desired <= minimum)
        if node.is_empty or is_current:
            continue
        yield Finding(
            KIND,
            "AWS Batch itself changes DesiredvCpus: an update that resets it fails, or terminates"
            " running instances",
            (f"DesiredvCpus {desired if desired is not None else 'is set'}",),
            ("delete the line",),
            template.place(resource, node),
        )
