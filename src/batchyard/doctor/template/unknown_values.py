"""Explain why the value of a property is unknown: a parameter without default, an import. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from batchyard.doctor.template.resources import (
    DYNAMIC_REFERENCE,
    NOTHING,
    UNKNOWN_LINE,
    Template,
    function_call,
)
from batchyard.doctor.template.terraform import PLANNED
from batchyard.yaml_positions import Node

_SUB_NAME = re.compile(r"\$\{([^!}][^}]*)\}")
_MAX_DEPTH = 20
#: Parameters in SSM that AWS publishes: their paths say what they are.
_PUBLIC_PATH = "/aws/service/"
#: Resources whose attributes another program decides.
_OPAQUE_TYPES = ("Custom::", "AWS::CloudFormation::CustomResource", "AWS::CloudFormation::Stack")
#: Properties that consist of properties with reasons of their own.
_COMPOSITE = frozenset(
    {
        "ComputeResources",
        "Ec2Configuration",
        "EvaluateOnExit",
        "SecurityGroupIngress",
        "PolicyDocument",
    }
)
_REASONS = {
    "ImportValue": "it is imported from another stack",
    PLANNED: "it is known only when the plan is applied",
    "Transform": "a macro makes it",
}


def explain_property(template: Template, name: str, node: Node) -> str:
    """Return why the property cannot be judged; empty if it can."""
    if name == "UserData":
        # A script can be judged unless a whole line of it is unknown.
        is_judged = not UNKNOWN_LINE.search(template.lines(node).text)
        return "" if is_judged else explain_unknown(template, node)
    if name in ("ImageId", "ImageIdOverride") and (template.text(node) or "").startswith("ami-"):
        return "an image's id does not say which system is on it"
    if name in _COMPOSITE and function_call(node) is None:
        return ""
    return explain_unknown(template, node)


def explain_unknown(template: Template, node: Node) -> str:
    """Return why the value is unknown; empty if it is known, or names a resource."""
    return next(_find_reasons(template, node, 0), "")


def _find_reasons(template: Template, node: Node, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        return
    call = function_call(node)
    if call is not None:
        yield from _reasons_of_call(template, *call, depth)
        return
    if _is_looked_up(node.text):
        yield "it is looked up when the stack is made"
    for child in node.children():
        yield from _find_reasons(template, child, depth + 1)


def _reasons_of_call(template: Template, name: str, argument: Node, depth: int) -> Iterator[str]:
    if name in _REASONS:
        yield _REASONS[name]
        return
    first = argument.items[0] if argument.items else argument
    if name in ("Ref", "GetAtt"):
        yield from _reasons_of_name(template, first.text or "")
        return
    if name == "Sub":
        for word in _find_sub_names(argument):
            yield from _reasons_of_name(template, word)
    yield from _find_reasons(template, argument, depth + 1)
    if name == "FindInMap" and template.find_in_map(argument) is None:
        yield "its map has no such key, or the key is not known"


def _find_sub_names(argument: Node) -> list[str]:
    """Return the names in Fn::Sub that are not variables of its own."""
    first = argument.items[0] if argument.items else argument
    variables = argument.items[1] if len(argument.items) > 1 else NOTHING
    names = _SUB_NAME.findall(first.text or "")
    return [name for name in names if variables.get(name) is None]


def _reasons_of_name(template: Template, word: str) -> Iterator[str]:
    name = word.partition(".")[0]
    if name not in template.parameters:
        resource = template.find(name)
        if resource is not None and resource.type.startswith(_OPAQUE_TYPES):
            yield f"{name} says it only when it is made"
        return
    default = template.parameters[name].get("Default")
    if default is None:
        yield f"the parameter {name} has no default"
        return
    text = default.text or ""
    is_private_path = template.is_from_ssm(name) and _PUBLIC_PATH not in text
    if is_private_path or _is_looked_up(text):
        yield f"the parameter {name} is looked up when the stack is made"


def _is_looked_up(text: str | None) -> bool:
    """Return whether the text is a dynamic reference to something that AWS does not publish."""
    return text is not None and DYNAMIC_REFERENCE in text and _PUBLIC_PATH not in text
