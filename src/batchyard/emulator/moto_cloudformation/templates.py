"""Read CloudFormation templates, find what their parts refer to, and compare two of them. Pure.

moto 5.2.5: loads YAML with a loader that runs Python code, gets nested short forms wrong, orders
resources by DependsOn alone, and checks references only while it creates resources.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

import yaml

from batchyard import cfn_yaml

Template = dict[str, Any]

PSEUDO_PARAMETERS = frozenset(
    f"AWS::{name}"
    for name in (
        "AccountId",
        "NotificationARNs",
        "NoValue",
        "Partition",
        "Region",
        "StackId",
        "StackName",
        "URLSuffix",
    )
)
#: properties that give an IAM resource a name of the caller's choice
_IAM_NAMES = ("RoleName", "UserName", "GroupName", "ManagedPolicyName", "InstanceProfileName")
_SUBSTITUTE = re.compile(r"\$\{([^!}][^}]*)\}")


class TemplateError(ValueError):
    """An invalid template or parameter: a ValidationError before anything is created."""


# -- reading ---------------------------------------------------------------------------------------


def parse(text: str) -> Template:
    """Return the template that a JSON or YAML text has. Raises TemplateError if it is invalid."""
    try:
        template = json.loads(text)
    except ValueError:
        try:
            template = cfn_yaml.load(text)
        except yaml.YAMLError as exc:
            raise TemplateError(f"Template format error: {' '.join(str(exc).split())}") from exc
    if not isinstance(template, dict):
        raise TemplateError("Template format error: unsupported structure.")
    _check(template)
    return template


def _check(template: Template) -> None:
    """Raise TemplateError if a part is missing or refers to something that does not exist."""
    _check_resources(template.get("Resources"))
    resources = set(template["Resources"])
    parameters = {*template.get("Parameters", {}), *PSEUDO_PARAMETERS}
    unknown = sorted(set(find_references(template.get("Conditions") or {})) - parameters)
    if unknown:
        raise TemplateError(
            f"Template format error: Unresolved dependencies [{', '.join(unknown)}]. "
            "Cannot reference resources in the Conditions block of the template"
        )
    for block in ("Resources", "Outputs"):
        references = set(find_references(template.get(block) or {}))
        unknown = sorted(references - parameters - resources)
        if unknown:
            raise TemplateError(
                f"Template format error: Unresolved resource dependencies [{', '.join(unknown)}] "
                f"in the {block} block of the template"
            )
    dependency_order(template)


def _check_resources(resources: Any) -> None:
    if not isinstance(resources, dict) or not resources:
        raise TemplateError("Template format error: At least one Resources member must be defined.")
    for name, resource in resources.items():
        if not isinstance(resource, dict) or not isinstance(resource.get("Type"), str):
            raise TemplateError(
                f"Template format error: [/Resources/{name}] "
                "Every Resources member must have a Type."
            )


# -- references ------------------------------------------------------------------------------------


def find_references(value: Any) -> Iterator[str]:
    """Yield the names of resources and parameters that a part of a template refers to."""
    if isinstance(value, list):
        for member in value:
            yield from find_references(member)
    elif isinstance(value, Mapping):
        for key, member in value.items():
            yield from _references_of_member(key, member)


def _references_of_member(key: str, member: Any) -> Iterator[str]:
    if key == "Ref" and isinstance(member, str):
        yield member
    elif key == "Fn::GetAtt":
        yield member.partition(".")[0] if isinstance(member, str) else str(member[0])
    elif key == "Fn::Sub":
        yield from _references_of_sub(member)
    elif key == "DependsOn":
        yield from [member] if isinstance(member, str) else member
    else:
        yield from find_references(member)


def _references_of_sub(argument: Any) -> Iterator[str]:
    has_variables = isinstance(argument, list) and len(argument) == 2
    text, variables = argument if has_variables else (argument, {})
    for reference in _SUBSTITUTE.findall(str(text)):
        name = reference.strip().partition(".")[0]
        if name not in variables:
            yield name
    yield from find_references(variables)


def dependency_order(template: Template) -> list[str]:
    """Return the logical ids, each after the ones it depends on, otherwise in template order."""
    resources: dict[str, Any] = template["Resources"]
    graph = {
        name: [other for other in dict.fromkeys(find_references(resource)) if other in resources]
        for name, resource in resources.items()
    }
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as exc:
        names = ", ".join(dict.fromkeys(exc.args[1]))
        raise TemplateError(f"Circular dependency between resources: [{names}]") from exc


def find_modified(old: Template, new: Template, changed_parameters: Iterable[str]) -> list[str]:
    """Return the logical ids of resources that differ or that use a changed parameter.

    Only resources that are in both templates count.
    """
    old_resources: dict[str, Any] = old.get("Resources", {})
    new_resources: dict[str, Any] = new["Resources"]
    parameters = set(changed_parameters)
    conditions = _conditions_that_use(parameters, new.get("Conditions") or {})
    return [
        name
        for name, resource in new_resources.items()
        if name in old_resources
        and (
            resource != old_resources[name]
            or parameters & set(find_references(resource))
            or conditions & set(_find_conditions(resource.get("Properties")))
        )
    ]


def _conditions_that_use(parameters: set[str], conditions: Mapping[str, Any]) -> set[str]:
    """Return the conditions that use a parameter, directly or through another condition."""
    names = {name for name, value in conditions.items() if parameters & set(find_references(value))}
    while True:
        users = {name for name, value in conditions.items() if names & set(_find_conditions(value))}
        if users <= names:
            return names
        names |= users


def _find_conditions(value: Any) -> Iterator[str]:
    """Yield the names of conditions that a part of a template uses."""
    if isinstance(value, list):
        for member in value:
            yield from _find_conditions(member)
    if not isinstance(value, Mapping):
        return
    for key, member in value.items():
        if key == "Condition" and isinstance(member, str):
            yield member
        elif key == "Fn::If":
            yield str(member[0])
        yield from _find_conditions(member)


def required_capabilities(template: Template) -> list[str]:
    """Return what the caller has to acknowledge: CAPABILITY_IAM or CAPABILITY_NAMED_IAM."""
    properties_of_iam = [
        resource.get("Properties") or {}
        for resource in template["Resources"].values()
        if resource["Type"].startswith("AWS::IAM::")
    ]
    if not properties_of_iam:
        return []
    is_named = any(name in properties for properties in properties_of_iam for name in _IAM_NAMES)
    return ["CAPABILITY_NAMED_IAM"] if is_named else ["CAPABILITY_IAM"]
