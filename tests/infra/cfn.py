"""Reads CloudFormation templates as values, and fills in what their functions would."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from batchyard import cfn_yaml, infra

REPOSITORY = Path(__file__).parents[2]

Template = dict[str, Any]


def parse(text: str) -> Template:
    loaded: Template = cfn_yaml.load(text)
    return loaded


#: template -> another text of it, for tests of the tests
_mutants: dict[str, str] = {}
_read_once = cache(infra.read_template)
_parse_once = cache(parse)


@contextmanager
def mutated(name: str, right: str, wrong: str) -> Iterator[None]:
    """Give a template another text: ``wrong`` in the place of the first ``right``."""
    original = text(name)
    assert right in original, f"{name} has no {right!r}"
    _mutants[name] = original.replace(right, wrong, 1)
    try:
        yield
    finally:
        del _mutants[name]


def text(name: str) -> str:
    return _mutants.get(name) or _read_once(name)


def template(name: str) -> Template:
    return _parse_once(text(name))


def nodes(value: Any) -> Iterator[Any]:
    """The value and all that is in it."""
    yield value
    children = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    for child in children:
        yield from nodes(child)


def resources(name: str, kind: str) -> dict[str, Any]:
    """The properties of a template's resources of one type, by their names."""
    found = template(name)["Resources"].items()
    return {key: resource["Properties"] for key, resource in found if resource["Type"] == kind}


def imports(name: str) -> set[str]:
    return {
        render(node["Fn::ImportValue"], {"Env": "ENV"})
        for node in nodes(template(name))
        if isinstance(node, dict) and "Fn::ImportValue" in node
    }


def exports(name: str) -> set[str]:
    outputs = template(name)["Outputs"].values()
    return {
        render(output["Export"]["Name"], {"Env": "ENV"}) for output in outputs if "Export" in output
    }


def render(value: Any, values: Mapping[str, str]) -> Any:
    """The value with Ref, GetAtt, Sub, Join and ImportValue filled in; `Name.Attribute` stands
    for a GetAtt.
    """
    if isinstance(value, list):
        return [render(item, values) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"Ref": name}:
            return values[name]
        case {"Fn::GetAtt": [name, attribute]}:
            return values[f"{name}.{attribute}"]
        case {"Fn::Sub": [pattern, more]}:
            return substitute(pattern, {**values, **render(more, values)})
        case {"Fn::Sub": pattern}:
            return substitute(pattern, values)
        case {"Fn::Join": [between, parts]}:
            return between.join(render(parts, values))
        case {"Fn::ImportValue": name}:
            return values.get(export := render(name, values), export)
        case _:
            return {key: render(item, values) for key, item in value.items()}


def substitute(pattern: str, values: Mapping[str, str]) -> str:
    """What Fn::Sub does: ${Name} is a value, ${!Name} is ${Name}."""
    return re.sub(
        r"\$\{(!?)([^}]*)\}",
        lambda match: f"${{{match[2]}}}" if match[1] else values[match[2].strip()],
        pattern,
    )
