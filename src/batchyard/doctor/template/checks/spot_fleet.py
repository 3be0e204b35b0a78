"""BY208: the template uses a Spot Fleet."""

from __future__ import annotations

from batchyard.doctor.finding import Finding, Findings, Kind, Severity
from batchyard.doctor.template.checks.base import check_template
from batchyard.doctor.template.resources import Template

KIND = Kind("BY208", Severity.WARNING, 40, "no Spot Fleet is used")


@check_template(KIND)
def check(template: Template) -> Findings:
    for resource in template.of_type("AWS::EC2::SpotFleet"):
        yield Finding(
            KIND,
            "Spot Fleet is a legacy interface, which AWS advises against",
            (f"{resource.name} is a Spot Fleet",),
            ("use an Auto Scaling group with a MixedInstancesPolicy, or AWS Batch",),
            template.place(resource),
        )
