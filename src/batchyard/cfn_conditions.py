"""Decide CloudFormation's conditions and rule assertions from the values of parameters. Pure.

Only what conditions of parameters need: references to parameters, no attributes of resources.
https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/intrinsic-function-reference-conditions.html
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

Values = Mapping[str, Any]


def holds(condition: Any, values: Values, conditions: Mapping[str, Any] | None = None) -> bool:
    """Return whether a condition holds. ``values``: parameter -> text, or texts of a list.

    ``conditions`` are the named conditions of the template. Raises ValueError for a function that
    is not known here, KeyError for an unknown name.
    """
    ((function, arguments),) = condition.items()
    if function == "Condition":
        return holds((conditions or {})[arguments], values, conditions)
    if function == "Fn::And":
        return all(holds(argument, values, conditions) for argument in arguments)
    if function == "Fn::Or":
        return any(holds(argument, values, conditions) for argument in arguments)
    if function == "Fn::Not":
        return not holds(arguments[0], values, conditions)
    compare = _COMPARISONS.get(function)
    if compare is None:
        raise ValueError(f"{function} is not known here")
    first, second = (_resolve(argument, values) for argument in arguments)
    return compare(first, second)


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "Fn::Equals": operator.eq,
    "Fn::Contains": operator.contains,
    "Fn::EachMemberEquals": lambda members, value: all(member == value for member in members),
    "Fn::EachMemberIn": lambda members, allowed: all(member in allowed for member in members),
}


def _resolve(value: Any, values: Values) -> Any:
    if isinstance(value, list):
        return [_resolve(member, values) for member in value]
    if isinstance(value, Mapping):
        ((function, name),) = value.items()
        if function != "Ref":
            raise ValueError(f"{function} is not known here")
        return values[name]
    return str(value).lower() if isinstance(value, bool) else str(value)
