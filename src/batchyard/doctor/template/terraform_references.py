"""Find which resources of a Terraform configuration refer to which, across modules. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Values = dict[str, Any]

_INDEX = re.compile(r"\[[^\]]*\]")
_MAX_DEPTH = 20
_NOT_RESOURCES = frozenset({"local", "each", "path", "terraform", "count", "self"})


@dataclass(slots=True)
class _Module:
    #: "module.a.module.b.", or empty for the root module
    path: str
    content: Values
    #: variable -> the expression that the parent passes
    arguments: Values = field(default_factory=dict)
    parent: _Module | None = None
    children: dict[str, _Module] = field(default_factory=dict)


def remove_indexes(address: str) -> str:
    """Return the address that all instances of a resource share.

    `module.a["x"].aws_iam_role.r[0]` becomes `module.a.aws_iam_role.r`.
    """
    return _INDEX.sub("", address)


def find_references(configuration: Values, key: str = "") -> dict[str, list[str]]:
    """Return address -> the addresses in its expressions; with ``key``, only in those of that name.

    All addresses are without indexes.
    """
    references: dict[str, set[str]] = {}
    root = _make_module(_as_dict(configuration.get("root_module")), "", {}, None, 0)
    for module in _walk(root):
        for resource in _as_list(module.content.get("resources")):
            address = module.path + remove_indexes(str(_as_dict(resource).get("address", "")))
            expressions = _as_dict(resource).get("expressions")
            for expression in _find_key(expressions, key, 0) if key else [expressions]:
                for name in _find_names(expression, 0):
                    targets = references.setdefault(address, set())
                    targets.update(_resolve(module, name, set()))
    return {address: sorted(targets) for address, targets in references.items()}


def _make_module(
    content: Values, path: str, arguments: Values, parent: _Module | None, depth: int
) -> _Module:
    module = _Module(path, content, arguments, parent)
    if depth >= _MAX_DEPTH:
        return module
    for name, call in _as_dict(content.get("module_calls")).items():
        module.children[name] = _make_module(
            _as_dict(_as_dict(call).get("module")),
            f"{path}module.{name}.",
            _as_dict(_as_dict(call).get("expressions")),
            module,
            depth + 1,
        )
    return module


def _walk(module: _Module) -> Iterator[_Module]:
    yield module
    for child in module.children.values():
        yield from _walk(child)


def _find_names(expression: Any, depth: int) -> Iterator[str]:
    """Yield all names under `references`, at any depth of the expression."""
    if depth > 2 * _MAX_DEPTH:
        return
    if isinstance(expression, dict):
        names = _as_list(expression.get("references"))
        yield from (name for name in names if isinstance(name, str))
        for value in expression.values():
            yield from _find_names(value, depth + 1)
    for item in _as_list(expression):
        yield from _find_names(item, depth + 1)


def _find_key(expression: Any, key: str, depth: int) -> Iterator[Any]:
    """Yield the values of all keys of that name, at any depth of the expression."""
    if depth >= _MAX_DEPTH:
        return
    for name, value in _as_dict(expression).items():
        if name == key:
            yield value
        else:
            yield from _find_key(value, key, depth + 1)
    for item in _as_list(expression):
        yield from _find_key(item, key, depth + 1)


def _resolve(module: _Module, name: str, seen: set[tuple[str, str]]) -> Iterator[str]:
    """Yield the addresses of resources that a name leads to, through variables and outputs."""
    kind, _, path = remove_indexes(name).partition(".")
    first, _, second = path.partition(".")
    if not first or (module.path, name) in seen or kind in _NOT_RESOURCES:
        return
    seen.add((module.path, name))
    if kind == "data":
        yield f"{module.path}data.{first}.{second.partition('.')[0]}"
        return
    if kind not in ("module", "var"):
        yield f"{module.path}{kind}.{first}"
        return
    source, expression = module.parent, module.arguments.get(first)
    if kind == "module":
        source = module.children.get(first)
        outputs = _as_dict(source.content.get("outputs")) if source else {}
        expression = _as_dict(outputs.get(second.partition(".")[0])).get("expression")
    if source is not None:
        for source_name in _find_names(expression, 0):
            yield from _resolve(source, source_name, seen)


def _as_dict(value: Any) -> Values:
    return value if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
