"""Resolve the conditions of a template: one variant per outcome, each without Fn::If. Pure.

The first variant has every parameter at its default. Each further one changes a single parameter to
another value that a condition compares it with, and the last one changes all of them. A condition
that depends on something other than parameters is tried both ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from batchyard import yaml_positions
from batchyard.doctor.template.resources import NOTHING, Resource, Template, function_call
from batchyard.doctor.yaml_tree import make_mapping
from batchyard.yaml_positions import Node, Sequence

MAX_VARIANTS = 64
NO_VALUE = "AWS::NoValue"
_MAX_DEPTH = 30


def make_variants(template: Template) -> list[Template]:
    """Return the template once for each outcome of its conditions, that of the defaults first."""
    if template.kind == "Terraform":
        return [template]
    names = _find_used_conditions(template)
    variants: dict[tuple[bool, ...], Template] = {}
    for overrides in _make_overrides(template):
        variant = replace(template, overrides=overrides)
        outcomes = {name: _evaluate_named(variant, name, 0) for name in names}
        for undecided in (False, True):
            decided = {
                name: undecided if outcome is None else outcome
                for name, outcome in outcomes.items()
            }
            key = tuple(decided.values())
            if key not in variants and len(variants) < MAX_VARIANTS:
                variants[key] = _resolve_variant(variant, decided)
    return list(variants.values())


def _find_used_conditions(template: Template) -> list[str]:
    """Return the names of the conditions that resources and their properties depend on."""
    names = {resource.condition: None for resource in template.resources if resource.condition}
    for resource in template.resources:
        for node in _walk_resource(resource):
            call = function_call(node)
            if call and call[0] == "If" and len(call[1].items) == 3:
                names[call[1].items[0].text or ""] = None
    return list(names)


def _walk_resource(resource: Resource) -> Iterator[Node]:
    yield from _walk(resource.properties)
    yield from _walk(resource.metadata)


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children():
        yield from _walk(child)


# -- values of parameters ------------------------------------------------------------------------


def _make_overrides(template: Template) -> Iterator[dict[str, str | None]]:
    """Yield parameter -> value for each variant; None is any value that no condition names."""
    compared: dict[str, list[str]] = {}
    for condition in template.conditions.values():
        for node in _walk(condition):
            name, argument = function_call(node) or ("", NOTHING)
            parameter, text = _read_comparison(argument) if name == "Equals" else ("", "")
            if parameter in template.parameters:
                compared.setdefault(parameter, []).append(text)
    yield {}
    all_changed: dict[str, str | None] = {}
    for parameter, texts in compared.items():
        for value in _other_values(template, parameter, texts):
            all_changed.setdefault(parameter, value)
            yield {parameter: value}
    yield all_changed


def _other_values(template: Template, parameter: str, compared: list[str]) -> list[str | None]:
    allowed_values = template.parameters[parameter].get("AllowedValues") or NOTHING
    allowed = [value.text or "" for value in allowed_values.items]
    values: list[str | None] = [text for text in compared if not allowed or text in allowed]
    values += [value for value in allowed if value not in compared][:1] if allowed else [None]
    default = template.parameter_value(parameter)
    return [value for value in dict.fromkeys(values) if value != default]


def _read_comparison(argument: Node) -> tuple[str, str]:
    """Return the parameter and the text that Fn::Equals compares; empty for other comparisons."""
    sides = argument.items
    if len(sides) != 2:
        return "", ""
    for side, opposite in (sides, sides[::-1]):
        call = function_call(side)
        if (
            call
            and call[0] == "Ref"
            and function_call(opposite) is None
            and opposite.text is not None
        ):
            return call[1].text or "", opposite.text
    return "", ""


# -- evaluation: True, False, or None if the template does not decide it ------------------------


def _evaluate_named(template: Template, name: str, depth: int) -> bool | None:
    node = template.conditions.get(name)
    return None if node is None else _evaluate(template, node, depth + 1)


def _evaluate(template: Template, node: Node, depth: int) -> bool | None:
    if depth > _MAX_DEPTH:
        return None
    named = node.get("Condition") if len(node.entries) == 1 else None
    name, argument = ("Condition", named) if named else function_call(node) or ("", NOTHING)
    if name == "Condition":
        return _evaluate_named(template, argument.text or "", depth)
    if name == "Equals":
        return _evaluate_equals(template, argument)
    operands = [_evaluate(template, operand, depth + 1) for operand in argument.items]
    return _combine(name, operands)


def _combine(name: str, operands: list[bool | None]) -> bool | None:
    if name == "Not" and len(operands) == 1:
        return None if operands[0] is None else not operands[0]
    if name not in ("And", "Or"):
        return None
    decisive = name == "Or"
    if decisive in operands:
        return decisive
    return None if None in operands else not decisive


def _evaluate_equals(template: Template, argument: Node) -> bool | None:
    sides = [template.text(side) for side in argument.items]
    if len(sides) == 2 and None not in sides:
        return sides[0] == sides[1]
    # A parameter without a default is taken as different until it is overridden.
    return False if _read_comparison(argument)[0] in template.parameters else None


# -- resources -----------------------------------------------------------------------------------


def _resolve_variant(template: Template, outcomes: Mapping[str, bool]) -> Template:
    resources = (
        _resolve_resource(template, resource, outcomes)
        for resource in template.resources
        if not resource.condition or outcomes[resource.condition]
    )
    return replace(template, resources=tuple(resources))


def _resolve_resource(
    template: Template, resource: Resource, outcomes: Mapping[str, bool]
) -> Resource:
    return replace(
        resource,
        properties=_resolve(template, resource.properties, outcomes, 0) or NOTHING,
        metadata=_resolve(template, resource.metadata, outcomes, 0) or NOTHING,
    )


def _resolve(
    template: Template, node: Node, outcomes: Mapping[str, bool], depth: int
) -> Node | None:
    """Return the node without Fn::If and Fn::FindInMap; None if it is AWS::NoValue."""
    name, argument = function_call(node) or ("", NOTHING)
    if name == "Ref" and argument.text == NO_VALUE:
        return None
    value = _look_up(template, name, argument, outcomes) if depth < 2 * _MAX_DEPTH else None
    if value is None:
        return _resolve_children(template, node, outcomes, depth)
    resolved = _resolve(template, value, outcomes, depth + 1)
    if resolved is None:
        return None
    # A finding names the line of the property, not of the branch or map.
    key_line = node.key_line or resolved.key_line
    return replace(resolved, key_line=key_line, line=resolved.line or node.line)


def _resolve_children(
    template: Template, node: Node, outcomes: Mapping[str, bool], depth: int
) -> Node:
    if isinstance(node, yaml_positions.Mapping):
        children = {
            key: _resolve(template, child, outcomes, depth) for key, child in node.fields().items()
        }
        present = {key: child for key, child in children.items() if child is not None}
        return replace(node, entries=make_mapping(present).entries)
    if isinstance(node, Sequence):
        items = (_resolve(template, item, outcomes, depth) for item in node.items)
        return replace(node, items=[item for item in items if item is not None])
    return node


def _look_up(
    template: Template, name: str, argument: Node, outcomes: Mapping[str, bool]
) -> Node | None:
    if name == "FindInMap":
        return template.find_in_map(argument)
    if name != "If" or len(argument.items) != 3:
        return None
    condition, if_true, if_false = argument.items
    return if_true if outcomes.get(condition.text or "") else if_false
