"""BY211: managed termination protection is set on the capacity provider only."""

from __future__ import annotations

from collections.abc import Iterator

from batchyard.doctor.finding import Finding, Findings, Kind, Severity, Unseen
from batchyard.doctor.template.checks.base import TemplateCheck
from batchyard.doctor.template.launch_templates import terraform_references_of
from batchyard.doctor.template.resources import Resource, Template
from batchyard.doctor.template.terraform_references import remove_indexes

KIND = Kind("BY211", Severity.ERROR, 60, "termination protection is set on both sides")

_GROUP = "AWS::AutoScaling::AutoScalingGroup"
_PROVIDER = "AWS::ECS::CapacityProvider"
_SETTINGS = "AutoScalingGroupProvider"


def find(template: Template) -> Findings:
    for provider in _protected_providers(template):
        problems = [
            f"NewInstancesProtectedFromScaleIn of {group.name} is not true"
            for group in _find_groups(template, provider)
            if _is_unprotected(template, group)
        ]
        scaling = provider.get(_SETTINGS, "ManagedScaling")
        if template.text_of(scaling, "Status") == "DISABLED":
            problems.append("ManagedScaling is DISABLED")
        if problems:
            yield Finding(
                KIND,
                "ManagedTerminationProtection needs managed scaling, and protection on the group:"
                " the stack fails",
                tuple(problems),
                (
                    "NewInstancesProtectedFromScaleIn: true on the group,"
                    " ManagedScaling Status: ENABLED",
                ),
                template.place(provider),
            )


def _protected_providers(template: Template) -> Iterator[Resource]:
    for provider in template.of_type(_PROVIDER):
        protection = provider.get(_SETTINGS, "ManagedTerminationProtection")
        if template.text(protection) == "ENABLED":
            yield provider


def _is_unprotected(template: Template, group: Resource) -> bool:
    node = group.get("NewInstancesProtectedFromScaleIn")
    is_unknown = template.text(node) is None and not node.is_empty
    return not is_unknown and not template.is_true(node)


def _find_groups(template: Template, provider: Resource) -> list[Resource]:
    node = provider.get(_SETTINGS, "AutoScalingGroupArn")
    name, arn = template.target_name(node), template.text(node)
    addresses = terraform_references_of(provider)
    return [
        group
        for group in template.of_type(_GROUP)
        if group.name == name
        or remove_indexes(group.name) in addresses
        or (arn and template.text_of(group.properties, "Arn") == arn)
    ]


def _find_unchecked(template: Template) -> Iterator[Unseen]:
    for provider in _protected_providers(template):
        name = template.target_name(provider.get(_SETTINGS, "AutoScalingGroupArn"))
        target = template.find(name)
        is_group = target is not None and target.type == _GROUP
        if not is_group and not terraform_references_of(provider):
            yield Unseen(KIND, f"the group of {provider.name} is not in this template")


check = TemplateCheck(
    (KIND,),
    find,
    (
        (_PROVIDER, f"{_SETTINGS}.ManagedTerminationProtection"),
        (_PROVIDER, f"{_SETTINGS}.ManagedScaling.Status"),
    ),
    _find_unchecked,
)
