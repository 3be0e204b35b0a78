"""BY206: the compute environment ignores changes of its launch template."""

from __future__ import annotations

from batchyard.doctor.finding import Finding, Findings, Kind, Severity
from batchyard.doctor.template.checks.base import ENVIRONMENT, check_template
from batchyard.doctor.template.launch_templates import find_launch_template, launch_nodes
from batchyard.doctor.template.resources import NOTHING, Template

KIND = Kind("BY206", Severity.WARNING, 40, "changes of the launch template reach the environment")


@check_template(
    KIND,
    properties=(
        (ENVIRONMENT, "ComputeResources"),
        (ENVIRONMENT, "ComputeResources.LaunchTemplate.Version"),
    ),
)
def check(template: Template) -> Findings:
    if template.kind == "Terraform":
        return
    for resource in template.of_type(ENVIRONMENT):
        for node in launch_nodes(resource):
            target = find_launch_template(template, node)
            if target is None:
                continue
            version = template.lines(node.get("Version") or NOTHING).text
            # Someone may set the default version outside of the template.
            default_version = f"__{target.name}_DefaultVersionNumber__"
            if version not in ("", "$Latest", "$Default", default_version):
                continue
            version_text = version.strip("_").replace("_", ".") or "not given, which means $Default"
            yield Finding(
                KIND,
                "a change of the launch template does not reach the environment: AWS Batch looks up"
                " the version only once",
                (f"Version {version_text}",),
                (f"Version: !GetAtt {target.name}.LatestVersionNumber",),
                template.place(resource, node),
            )
