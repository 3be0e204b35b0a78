"""Find the checks that could not be made because the template leaves a value unknown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from batchyard.doctor.finding import Kind, Unseen
from batchyard.doctor.template import launch_templates
from batchyard.doctor.template.checks.base import ENVIRONMENT
from batchyard.doctor.template.checks.table import CHECKS
from batchyard.doctor.template.resources import Resource, Template, function_call
from batchyard.doctor.template.unknown_values import explain_property
from batchyard.doctor.userdata import examine as user_data
from batchyard.yaml_positions import Node

_LAUNCH_TEMPLATE = "AWS::EC2::LaunchTemplate"
USER_DATA_KINDS = tuple(kind for kind, _, _ in user_data.CHECKS)
_USER_DATA_PROPERTIES = (
    (_LAUNCH_TEMPLATE, "LaunchTemplateData.UserData"),
    ("AWS::AutoScaling::LaunchConfiguration", "UserData"),
    ("AWS::EC2::Instance", "UserData"),
    ("AWS::EC2::SpotFleet", "SpotFleetRequestConfigData.LaunchSpecifications.*.UserData"),
)
#: (type of the resource, path of the property, the kinds that depend on it)
_PROPERTIES = (
    *((kind, path, check.kinds) for check in CHECKS for kind, path in check.properties),
    *((kind, path, USER_DATA_KINDS) for kind, path in _USER_DATA_PROPERTIES),
)


def find_unchecked(template: Template) -> Iterator[Unseen]:
    examined = _group_by_type(template)
    for type_name, path, kinds in _PROPERTIES:
        name = path.rpartition(".")[2]
        for resource in examined.get(type_name, ()):
            for node in _find_values(resource.properties, path.split(".")):
                reason = explain_property(template, name, node)
                if reason:
                    text = f"{name} of {resource.name}: {reason}"
                    yield from (Unseen(kind, text) for kind in kinds)
    for check in CHECKS:
        yield from check.find_unchecked(template)


def merge(unchecked: Iterable[Unseen]) -> tuple[Unseen, ...]:
    """Return one entry for each kind, with all its reasons, in the order of the ids."""
    reasons: dict[Kind, dict[str, None]] = {}
    for entry in unchecked:
        reasons.setdefault(entry.kind, {})[entry.reason] = None
    kinds = sorted(reasons, key=lambda kind: kind.id)
    return tuple(Unseen(kind, "; ".join(reasons[kind])) for kind in kinds)


def _group_by_type(template: Template) -> dict[str, list[Resource]]:
    """Return type -> the resources that the checks look at."""
    owners = launch_templates.find_owners(template)
    resources: dict[str, list[Resource]] = {}
    for resource in template.resources:
        is_unused = resource.type == _LAUNCH_TEMPLATE and resource.name not in owners
        is_other = resource.type == ENVIRONMENT and not _may_be_managed(template, resource)
        if not is_unused and not is_other:
            resources.setdefault(resource.type, []).append(resource)
    return resources


def _may_be_managed(template: Template, environment: Resource) -> bool:
    """Return whether the compute environment may be a managed one on EC2."""
    kind = template.text(environment.get("ComputeResources", "Type")) or ""
    is_unmanaged = (template.text(environment.get("Type")) or "").upper() == "UNMANAGED"
    return not is_unmanaged and "FARGATE" not in kind.upper()


def _find_values(node: Node, path: list[str]) -> Iterator[Node]:
    """Yield the values at the path; none below a function, which another path covers."""
    if not path:
        yield node
    elif function_call(node) is None:
        child = node.get(path[0])
        children = node.items if path[0] == "*" else [child] if child is not None else []
        for child in children:
            yield from _find_values(child, path[1:])
