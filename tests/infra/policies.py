"""What an IAM policy allows: the part of IAM's logic that this project's policies use, and no
more. Pure.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, NamedTuple


class Call(NamedTuple):
    action: str
    resource: str = "*"
    context: tuple[tuple[str, str], ...] = ()


def call(action: str, resource: str = "*", **context: str) -> Call:
    return Call(
        action, resource, tuple((key.replace("__", ":"), value) for key, value in context.items())
    )


def as_list(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def actions_of(statements: list[dict[str, Any]]) -> set[str]:
    return {action for statement in statements for action in as_list(statement["Action"])}


def holds(condition: dict[str, dict[str, Any]], context: dict[str, str]) -> bool:
    for operator, wanted in condition.items():
        known = ("StringEquals", "StringLike", "ArnEquals", "BoolIfExists", "Null")
        assert operator in known, operator
        for key, patterns in wanted.items():
            value = context.get(key)
            if operator == "Null":
                if (value is None) != (patterns == "true"):
                    return False
                continue
            if value is None and operator.endswith("IfExists"):
                continue
            if value is None or not any(
                fnmatchcase(value, pattern) for pattern in as_list(patterns)
            ):
                return False
    return True


def allows(statement: dict[str, Any], asked: Call) -> bool:
    assert statement["Effect"] == "Allow"
    return (
        any(fnmatchcase(asked.action, pattern) for pattern in as_list(statement["Action"]))
        and any(fnmatchcase(asked.resource, pattern) for pattern in as_list(statement["Resource"]))
        and holds(statement.get("Condition", {}), dict(asked.context))
    )


def allowed(statements: list[dict[str, Any]], asked: Call) -> bool:
    return any(allows(statement, asked) for statement in statements)
