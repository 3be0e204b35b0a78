"""Check the values of a template's parameters, also by the template's Rules. Pure.

moto 5.2.5: checks neither AllowedValues, AllowedPattern nor Rules.
https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/rules-section-structure.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from batchyard import cfn_conditions
from batchyard.emulator.moto_cloudformation.templates import Template, TemplateError


def check_parameters(template: Template, values: Mapping[str, Any]) -> None:
    """Raise TemplateError if a value is missing, not declared, or not allowed."""
    declared: dict[str, Any] = template.get("Parameters", {})
    undeclared = [name for name in values if name not in declared]
    if undeclared:
        raise TemplateError(f"Parameters: [{', '.join(undeclared)}] do not exist in the template")
    missing = [
        name
        for name, declaration in declared.items()
        if name not in values and "Default" not in declaration
    ]
    if missing:
        raise TemplateError(f"Parameters: [{', '.join(missing)}] must have values")
    for name, value in values.items():
        _check_constraints(name, declared[name], value)
    _check_rules(template, values)


def _check_constraints(name: str, declaration: Mapping[str, Any], value: Any) -> None:
    allowed = declaration.get("AllowedValues")
    if allowed is not None and str(value) not in map(str, allowed):
        raise TemplateError(f"Parameter '{name}' must be one of AllowedValues")
    pattern = declaration.get("AllowedPattern")
    if pattern is None:
        return
    typed = _typed_value(declaration, value)
    texts = [typed] if isinstance(typed, str) else typed
    if not all(re.fullmatch(pattern, text) for text in texts):
        constraint = declaration.get("ConstraintDescription", f"must match pattern {pattern}")
        raise TemplateError(f"Parameter '{name}' failed to satisfy constraint: {constraint}")


def _typed_value(declaration: Mapping[str, Any], value: Any) -> str | list[str]:
    kind = declaration["Type"]
    is_list = kind == "CommaDelimitedList" or kind.startswith("List<")
    return str(value).split(",") if is_list else str(value)


def _check_rules(template: Template, values: Mapping[str, Any]) -> None:
    typed_values = {
        name: _typed_value(declaration, values.get(name, declaration.get("Default", "")))
        for name, declaration in template.get("Parameters", {}).items()
    }
    try:
        failures = list(_failed_assertions(template.get("Rules", {}), typed_values))
    except (ValueError, KeyError) as exc:
        raise TemplateError(f"Template format error: Rules: {exc}") from exc
    if failures:
        raise TemplateError(f"Template error: {'; '.join(failures)}")


def _failed_assertions(rules: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the descriptions of failed assertions. ``values``: parameter -> text or texts."""
    for name, rule in rules.items():
        if "RuleCondition" in rule and not cfn_conditions.holds(rule["RuleCondition"], values):
            continue
        for assertion in rule["Assertions"]:
            if not cfn_conditions.holds(assertion["Assert"], values):
                yield assertion.get("AssertDescription", f"the rule {name} does not hold")
