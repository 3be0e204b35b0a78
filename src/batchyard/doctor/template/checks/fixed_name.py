"""BY207: a compute environment with a fixed name cannot be replaced."""

from __future__ import annotations

from batchyard.doctor.finding import Finding, Findings, Kind, Severity
from batchyard.doctor.template.checks.base import ENVIRONMENT, check_template
from batchyard.doctor.template.resources import Resource, Template

KIND = Kind("BY207", Severity.WARNING, 50, "an environment that is replaced has no fixed name")


@check_template(KIND, properties=((ENVIRONMENT, "ReplaceComputeEnvironment"),))
def check(template: Template) -> Findings:
    if template.kind == "Terraform":
        return
    for resource in template.of_type(ENVIRONMENT):
        node = resource.get("ComputeEnvironmentName")
        if node.is_empty or not _is_replaced(template, resource):
            continue
        yield Finding(
            KIND,
            "most changes replace the environment, and a second one with the same name cannot be"
            " created",
            ("ComputeEnvironmentName is set, ReplaceComputeEnvironment is not false",),
            ("delete ComputeEnvironmentName, or write ReplaceComputeEnvironment: false",),
            template.place(resource, node),
        )


def _is_replaced(template: Template, resource: Resource) -> bool:
    node = resource.get("ReplaceComputeEnvironment")
    # An unknown value may be false.
    text = template.text(node) or ("" if node.is_empty else "false")
    return text.lower() != "false"
