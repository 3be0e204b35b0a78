"""BY201: the template uses launch configurations."""

from __future__ import annotations

from batchyard.doctor.finding import Finding, Findings, Kind, Severity
from batchyard.doctor.template.checks.base import check_template
from batchyard.doctor.template.resources import Template

KIND = Kind("BY201", Severity.ERROR, 85, "no launch configuration is used")


@check_template(KIND)
def check(template: Template) -> Findings:
    for resource in template.of_type("AWS::AutoScaling::LaunchConfiguration"):
        yield Finding(
            KIND,
            "launch configurations cannot be created in accounts since 2024-10, and support no"
            " instance type since 2023",
            (f"{resource.name} is a launch configuration",),
            ("use a launch template: AWS::EC2::LaunchTemplate, aws_launch_template",),
            template.place(resource),
        )
