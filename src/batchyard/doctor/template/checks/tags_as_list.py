"""BY210: tags of AWS Batch are written as a list."""

from __future__ import annotations

from batchyard.doctor.finding import Finding, Findings, Kind, Severity
from batchyard.doctor.template.checks.base import check_template
from batchyard.doctor.template.resources import Template

KIND = Kind("BY210", Severity.ERROR, 70, "Batch tags are maps")


@check_template(KIND)
def check(template: Template) -> Findings:
    if template.kind == "Terraform":
        return
    for resource in template.resources:
        if not resource.type.startswith("AWS::Batch::"):
            continue
        for node in (resource.get("Tags"), resource.get("ComputeResources", "Tags")):
            if node.items:
                yield Finding(
                    KIND,
                    "tags of AWS Batch are a map, not a list of Key and Value",
                    (f"Tags of {resource.name} is a list of {len(node.items)}",),
                    ("Tags: {Name: value}",),
                    template.place(resource, node),
                )
