"""BY204: InstanceRole is a role, not an instance profile."""

from __future__ import annotations

from batchyard.doctor.finding import Finding, Findings, Kind, Severity
from batchyard.doctor.template.checks.base import ENVIRONMENT, check_template
from batchyard.doctor.template.resources import Template

KIND = Kind("BY204", Severity.ERROR, 88, "instanceRole is an instance profile")


@check_template(
    KIND,
    properties=((ENVIRONMENT, "ComputeResources"), (ENVIRONMENT, "ComputeResources.InstanceRole")),
)
def check(template: Template) -> Findings:
    for resource in template.of_type(ENVIRONMENT):
        node = resource.get("ComputeResources", "InstanceRole")
        target = template.find(template.target_name(node))
        text = template.lines(node).text
        if target is not None and target.type == "AWS::IAM::Role":
            text = f"{target.name}, an AWS::IAM::Role"
        elif ":role/" not in text:
            continue
        yield Finding(
            KIND,
            "InstanceRole names a role; it takes an instance profile",
            (f"InstanceRole is {text}",),
            (
                "add an AWS::IAM::InstanceProfile with this role, and write"
                " InstanceRole: !GetAtt Profile.Arn",
            ),
            template.place(resource, node),
        )
