"""A template -> report: its resources, and the user data inside them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from batchyard.doctor.finding import Finding, Kind, Report, in_order
from batchyard.doctor.kinds import KINDS
from batchyard.doctor.template import environments, others
from batchyard.doctor.template.read import read
from batchyard.doctor.template.resources import Lines, Resource, Template
from batchyard.doctor.userdata import examine as user_data

#: check -> the kinds that it can find
CHECKS: tuple[tuple[Callable[[Template], Iterator[Finding]], tuple[int, ...]], ...] = (
    (environments.examine, (17, 18, 19, 20, 21, 22, 23, 28, 30, 54, 57, 204, 205, 206, 207)),
    (others.launch_configurations, (201,)),
    (others.open_groups, (202,)),
    (others.great_roles, (203,)),
    (others.spot_fleets, (208,)),
    (others.spot_share, (209,)),
    (others.tags, (210,)),
    (others.termination_protection, (211,)),
    (others.retry_rules, (212,)),
    (others.launch_templates, (56, 213)),
)


def examine(data: bytes, name: str) -> Report:
    """Raises BadInput where the file is no template."""
    template = read(data, name)
    findings: list[Finding] = []
    kinds: list[Kind] = []
    for look, numbers in CHECKS:
        findings += look(template)
        kinds += [KINDS[number] for number in numbers]
    findings += _user_data(template)
    kinds += [kind for kind, _, _ in user_data.CHECKS]
    seen = {finding.kind for finding in findings}
    return Report(f"{template.kind} template {name}", in_order(findings), tuple(k for k in kinds if k not in seen))


def _user_data(template: Template) -> Iterator[Finding]:
    owners = others.users(template)
    for resource in template.resources:
        at = ("LaunchTemplateData", "UserData") if resource.type == "AWS::EC2::LaunchTemplate" else ("UserData",)
        lines = template.lines(resource.get(*at))
        if not lines.text.strip() or resource.type.startswith("AWS::Serverless"):
            continue
        # A server that has nothing to do with containers may start Docker as it likes.
        owner = owners.get(resource.name) or ("ecs" if "ecs" in lines.text.lower() else "")
        if owner:
            yield from _of_script(template, resource, lines, owner)


def _of_script(template: Template, resource: Resource, lines: Lines, owner: str) -> Iterator[Finding]:
    def place(line: int) -> str:
        at = lines.at(line)
        where = f"{template.name}:{at}" if at else template.name
        return f"{where} ({resource.name}, user data line {line})" if line else f"{where} ({resource.name})"

    yield from user_data.examine(lines.text.encode("utf-8", "replace"), resource.name, owner, place).findings
