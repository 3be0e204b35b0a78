"""BY213: a launch template for AWS Batch sets market options, which AWS Batch ignores."""

from __future__ import annotations

from batchyard.doctor.finding import Finding, Findings, Kind, Severity
from batchyard.doctor.template.checks.base import check_template
from batchyard.doctor.template.launch_templates import BATCH, find_owners
from batchyard.doctor.template.resources import Template

KIND = Kind(
    "BY213", Severity.NOTE, 30, "no market options in a launch template where they are ignored"
)


@check_template(KIND)
def check(template: Template) -> Findings:
    owners = find_owners(template)
    for resource in template.of_type("AWS::EC2::LaunchTemplate"):
        node = resource.get("LaunchTemplateData", "InstanceMarketOptions")
        if not node.is_empty and owners.get(resource.name) == BATCH:
            yield Finding(
                KIND,
                "AWS Batch ignores the market options of a launch template",
                ("InstanceMarketOptions is set",),
                ("delete it, and set the environment's Type: SPOT",),
                template.place(resource, node),
            )
