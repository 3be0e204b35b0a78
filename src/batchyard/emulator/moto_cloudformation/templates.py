"""CloudFormation templates as values: reading one, what its parts refer to, in what order they can be made. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

import yaml

from batchyard import cfn_yaml
from batchyard.emulator.moto_cloudformation import rules

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
#: resource types for which AWS wants to be told that it may
_IAM_TYPES = ("AWS::IAM::",)
_NAMED = ("RoleName", "UserName", "GroupName", "ManagedPolicyName", "InstanceProfileName")
_SUBSTITUTE = re.compile(r"\$\{([^!}][^}]*)\}")


class BadTemplate(ValueError):
    """What CloudFormation answers with a ValidationError before it makes anything."""


# -- reading ----------------------------------------------------------------------------------------------------


def parse(text: str) -> Template:
    """A template from its text, JSON or YAML."""
    try:
        template = json.loads(text)
    except ValueError:
        try:
            template = cfn_yaml.load(text)
        except yaml.YAMLError as exc:
            raise BadTemplate(f"Template format error: {' '.join(str(exc).split())}") from exc
    if not isinstance(template, dict):
        raise BadTemplate("Template format error: unsupported structure.")
    check(template)
    return template


def check(template: Template) -> None:
    """Raises BadTemplate where a part is missing or refers to what is not there."""
    resources = template.get("Resources")
    if not isinstance(resources, dict) or not resources:
        raise BadTemplate("Template format error: At least one Resources member must be defined.")
    for name, resource in resources.items():
        if not isinstance(resource, dict) or not isinstance(resource.get("Type"), str):
            raise BadTemplate(
                f"Template format error: [/Resources/{name}] Every Resources member must have a Type."
            )
    parameters = {*template.get("Parameters", {}), *PSEUDO_PARAMETERS}
    unknown = sorted(set(references(template.get("Conditions") or {})) - parameters)
    if unknown:
        raise BadTemplate(
            f"Template format error: Unresolved dependencies [{', '.join(unknown)}]. Cannot reference resources in the "
            "Conditions block of the template"
        )
    for block in ("Resources", "Outputs"):
        unknown = sorted(set(references(template.get(block) or {})) - parameters - set(resources))
        if unknown:
            raise BadTemplate(
                f"Template format error: Unresolved resource dependencies [{', '.join(unknown)}] in the {block} block "
                "of the template"
            )
    order(template)


# -- what refers to what ----------------------------------------------------------------------------------------


def references(value: Any) -> Iterator[str]:
    """The names of resources and parameters that a part of a template depends on."""
    if isinstance(value, list):
        for item in value:
            yield from references(item)
    if not isinstance(value, Mapping):
        return
    for key, item in value.items():
        if key == "Ref" and isinstance(item, str):
            yield item
        elif key == "Fn::GetAtt":
            yield item.partition(".")[0] if isinstance(item, str) else str(item[0])
        elif key == "Fn::Sub":
            yield from _substituted(item)
        elif key == "DependsOn":
            yield from [item] if isinstance(item, str) else item
        else:
            yield from references(item)


def _substituted(value: Any) -> Iterator[str]:
    text, given = (
        (value[0], value[1]) if isinstance(value, list) and len(value) == 2 else (value, {})
    )
    for name in _SUBSTITUTE.findall(str(text)):
        bare = name.strip().partition(".")[0]
        if bare not in given:
            yield bare
    yield from references(given)


def order(template: Template) -> list[str]:
    """The logical ids, each after those that it depends on; otherwise as they stand."""
    resources: dict[str, Any] = template["Resources"]
    graph = {
        name: [other for other in dict.fromkeys(references(resource)) if other in resources]
        for name, resource in resources.items()
    }
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as exc:
        names = ", ".join(dict.fromkeys(exc.args[1]))
        raise BadTemplate(f"Circular dependency between resources: [{names}]") from exc


def changes(
    old: Template, new: Template, changed_parameters: Iterable[str]
) -> dict[str, list[str]]:
    """What would be done to go from one to the other: Add, Modify, Remove -> logical ids."""
    before: dict[str, Any] = old.get("Resources", {})
    after: dict[str, Any] = new["Resources"]
    changed = set(changed_parameters)
    touched = _touched(new.get("Conditions") or {}, changed)

    def is_modified(name: str) -> bool:
        properties = after[name].get("Properties")
        return bool(
            after[name] != before[name]
            or changed & set(references(after[name]))
            or touched & set(_conditions_in(properties))
        )

    return {
        "Add": [name for name in after if name not in before],
        "Modify": [name for name in after if name in before and is_modified(name)],
        "Remove": [name for name in before if name not in after],
    }


def _touched(conditions: Mapping[str, Any], parameters: set[str]) -> set[str]:
    """The conditions that depend on one of the parameters, be it by way of another condition."""
    found = {name for name, value in conditions.items() if parameters & set(references(value))}
    while (
        more := {name for name, value in conditions.items() if found & set(_conditions_in(value))}
        - found
    ):
        found |= more
    return found


def _conditions_in(value: Any) -> Iterator[str]:
    """The names of conditions that a part of a template asks for."""
    if isinstance(value, list):
        for item in value:
            yield from _conditions_in(item)
    if not isinstance(value, Mapping):
        return
    for key, item in value.items():
        if key == "Condition" and isinstance(item, str):
            yield item
        elif key == "Fn::If":
            yield str(item[0])
        yield from _conditions_in(item)


# -- parameters -------------------------------------------------------------------------------------------------


def check_parameters(template: Template, given: Mapping[str, Any]) -> None:
    declared: dict[str, Any] = template.get("Parameters", {})
    surplus = [name for name in given if name not in declared]
    if surplus:
        raise BadTemplate(f"Parameters: [{', '.join(surplus)}] do not exist in the template")
    missing = [
        name for name, entry in declared.items() if name not in given and "Default" not in entry
    ]
    if missing:
        raise BadTemplate(f"Parameters: [{', '.join(missing)}] must have values")
    for name, value in given.items():
        allowed = declared[name].get("AllowedValues")
        if allowed is not None and str(value) not in map(str, allowed):
            raise BadTemplate(f"Parameter '{name}' must be one of AllowedValues")
        pattern = declared[name].get("AllowedPattern")
        if pattern is not None and not all(
            re.fullmatch(pattern, one) for one in _members(declared[name], value)
        ):
            explained = declared[name].get("ConstraintDescription", f"must match pattern {pattern}")
            raise BadTemplate(f"Parameter '{name}' failed to satisfy constraint: {explained}")
    values = {
        name: _value(entry, given.get(name, entry.get("Default", "")))
        for name, entry in declared.items()
    }
    try:
        faults = list(rules.broken(template.get("Rules", {}), values))
    except (ValueError, KeyError) as exc:
        raise BadTemplate(f"Template format error: Rules: {exc}") from exc
    if faults:
        raise BadTemplate(f"Template error: {'; '.join(faults)}")


def _value(declared: Mapping[str, Any], value: Any) -> str | list[str]:
    is_list = declared["Type"] == "CommaDelimitedList" or declared["Type"].startswith("List<")
    return str(value).split(",") if is_list else str(value)


def _members(declared: Mapping[str, Any], value: Any) -> list[str]:
    found = _value(declared, value)
    return [found] if isinstance(found, str) else found


def capabilities(template: Template) -> list[str]:
    """What the caller has to acknowledge: CAPABILITY_IAM or CAPABILITY_NAMED_IAM."""
    iam = [r for r in template["Resources"].values() if r["Type"].startswith(_IAM_TYPES)]
    if not iam:
        return []
    is_named = any(
        name in (resource.get("Properties") or {}) for resource in iam for name in _NAMED
    )
    return ["CAPABILITY_NAMED_IAM"] if is_named else ["CAPABILITY_IAM"]
