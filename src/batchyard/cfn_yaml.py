"""Load CloudFormation templates, JSON or YAML, as plain values. Pure."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml


def load(text: str) -> Any:
    """Return the template as dicts, lists and scalars, with functions in their long form.

    ``!Sub x`` becomes ``{"Fn::Sub": "x"}`` and ``!GetAtt a.b`` becomes
    ``{"Fn::GetAtt": ["a", "b"]}``. Dates stay text. Raises yaml.YAMLError.
    """
    import yaml

    return yaml.load(text, Loader=_make_loader())  # a SafeLoader


@cache
def _make_loader() -> type[yaml.SafeLoader]:
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader: type[yaml.SafeLoader] = type("CloudFormationLoader", (base,), {})
    loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in base.yaml_implicit_resolvers.items()
    }
    loader.add_multi_constructor("!", _construct_function)
    return loader


def _construct_function(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    import yaml

    value: Any
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        assert isinstance(node, yaml.MappingNode)
        value = loader.construct_mapping(node, deep=True)
    if suffix == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": value}
