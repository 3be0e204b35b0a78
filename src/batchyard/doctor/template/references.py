"""A Terraform configuration -> which resources point at which, through variables and outputs of modules. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Values = dict[str, Any]

_INDEX = re.compile(r"\[[^\]]*\]")
_MAX_DEPTH = 20
_NO_RESOURCES = frozenset({"local", "each", "path", "terraform", "count", "self"})


@dataclass(slots=True)
class _Module:
    #: module.a.module.b. or nothing
    path: str
    content: Values
    #: name -> the expression that a variable is given
    given: Values = field(default_factory=dict)
    parent: _Module | None = None
    children: dict[str, _Module] = field(default_factory=dict)


def bare(address: str) -> str:
    """`module.a["x"].aws_iam_role.r[0]` -> `module.a.aws_iam_role.r`: all instances are one."""
    return _INDEX.sub("", address)


def references(configuration: Values, key: str = "") -> dict[str, list[str]]:
    """Address -> the addresses that stand in its expressions, or only in those called ``key``. All of them bare."""
    found: dict[str, set[str]] = {}
    for module in _walk(_tree(_dict(configuration.get("root_module")), "", {}, None, 0)):
        for resource in _list(module.content.get("resources")):
            address = module.path + bare(str(_dict(resource).get("address", "")))
            given = _dict(resource).get("expressions")
            for expression in _called(given, key, 0) if key else [given]:
                for name in _names(expression, 0):
                    found.setdefault(address, set()).update(_resolved(module, name, set()))
    return {address: sorted(names) for address, names in found.items()}


def _tree(content: Values, path: str, given: Values, parent: _Module | None, depth: int) -> _Module:
    module = _Module(path, content, given, parent)
    for name, call in _dict(content.get("module_calls")).items() if depth < _MAX_DEPTH else ():
        inner, inner_given = _dict(_dict(call).get("module")), _dict(_dict(call).get("expressions"))
        module.children[name] = _tree(
            inner, f"{path}module.{name}.", inner_given, module, depth + 1
        )
    return module


def _walk(module: _Module) -> Iterator[_Module]:
    yield module
    for child in module.children.values():
        yield from _walk(child)


def _names(expression: Any, depth: int) -> Iterator[str]:
    """What stands under `references`, at whatever depth."""
    if depth > 2 * _MAX_DEPTH:
        return
    if isinstance(expression, dict):
        yield from (name for name in _list(expression.get("references")) if isinstance(name, str))
        for inner in expression.values():
            yield from _names(inner, depth + 1)
    for inner in _list(expression):
        yield from _names(inner, depth + 1)


def _called(expression: Any, key: str, depth: int) -> Iterator[Any]:
    """The expressions of that name, at whatever depth."""
    for name, inner in (
        expression.items() if isinstance(expression, dict) and depth < _MAX_DEPTH else ()
    ):
        if name == key:
            yield inner
        else:
            yield from _called(inner, key, depth + 1)
    for inner in _list(expression) if depth < _MAX_DEPTH else ():
        yield from _called(inner, key, depth + 1)


def _resolved(module: _Module, name: str, seen: set[tuple[str, str]]) -> Iterator[str]:
    kind, _, rest = bare(name).partition(".")
    first, _, second = rest.partition(".")
    if not first or (module.path, name) in seen or kind in _NO_RESOURCES:
        return
    seen.add((module.path, name))
    where, expression = module.parent, module.given.get(first)
    if kind == "module":
        where = module.children.get(first)
        outputs = _dict(where.content.get("outputs")) if where else {}
        expression = _dict(outputs.get(second.partition(".")[0])).get("expression")
    elif kind == "data":
        yield f"{module.path}data.{first}.{second.partition('.')[0]}"
        return
    elif kind != "var":
        yield f"{module.path}{kind}.{first}"
        return
    for other in _names(expression, 0) if where else ():
        yield from _resolved(where, other, seen) if where else ()


def _dict(value: Any) -> Values:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
