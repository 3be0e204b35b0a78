"""A template's Rules: which values of parameters go together. Pure.

https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/rules-section-structure.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def broken(rules: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[str]:
    """What the assertions say that do not hold. ``values``: parameter -> text, or a list of them."""
    for name, rule in rules.items():
        if "RuleCondition" in rule and not _holds(rule["RuleCondition"], values):
            continue
        for assertion in rule["Assertions"]:
            if not _holds(assertion["Assert"], values):
                yield assertion.get("AssertDescription", f"the rule {name} does not hold")


def _holds(condition: Any, values: Mapping[str, Any]) -> bool:
    ((function, arguments),) = condition.items()
    if function == "Fn::And":
        return all(_holds(one, values) for one in arguments)
    if function == "Fn::Or":
        return any(_holds(one, values) for one in arguments)
    if function == "Fn::Not":
        return not _holds(arguments[0], values)
    first, second = (_value(one, values) for one in arguments)
    if function == "Fn::Equals":
        return bool(first == second)
    if function == "Fn::Contains":
        return second in first
    if function == "Fn::EachMemberEquals":
        return all(member == second for member in first)
    if function == "Fn::EachMemberIn":
        return all(member in second for member in first)
    raise ValueError(f"{function} is not known in Rules")


def _value(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_value(one, values) for one in value]
    if isinstance(value, Mapping):
        ((function, name),) = value.items()
        if function != "Ref":
            raise ValueError(f"{function} is not known in Rules of this endpoint")
        return values[name]
    return str(value)
