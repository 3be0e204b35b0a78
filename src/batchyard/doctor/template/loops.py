"""Expand Fn::ForEach as the transform AWS::LanguageExtensions does. Pure."""

from __future__ import annotations

from dataclasses import replace

from batchyard.doctor.template.resources import Template, function_call
from batchyard.doctor.yaml_tree import make_mapping
from batchyard.yaml_positions import Mapping, Node, Scalar, Sequence

_LOOP = "Fn::ForEach::"
#: Nodes that all loops of a template together may expand to.
MAX_NODES = 20_000


def expand_loops(resources: Node, template: Template) -> tuple[Node, tuple[str, ...]]:
    """Return the resources without loops, and the names of the loops that cannot be expanded."""
    expander = _Expander(template)
    expanded = expander.expand(resources, {})
    return expanded, tuple(expander.unknown_loops)


class _Expander:
    def __init__(self, template: Template) -> None:
        self.template = template
        self.remaining_nodes = MAX_NODES
        self.unknown_loops: list[str] = []

    def expand(self, node: Node, variables: dict[str, str]) -> Node:
        """Expand a node; ``variables`` are the variables of the enclosing loops."""
        self.remaining_nodes -= 1
        name, argument = function_call(node) or ("", node)
        value = variables.get(argument.text or "") if name == "Ref" else None
        if value is not None:
            return Scalar(node.line, 0, value, key_line=node.key_line)
        if isinstance(node, Mapping):
            return replace(node, entries=make_mapping(self._expand_fields(node, variables)).entries)
        if isinstance(node, Sequence):
            return replace(node, items=[self.expand(item, variables) for item in node.items])
        if isinstance(node, Scalar) and variables:
            return replace(node, text=_fill_in(node.text, variables))
        return node

    def _expand_fields(self, mapping: Mapping, variables: dict[str, str]) -> dict[str, Node]:
        fields: dict[str, Node] = {}
        for key, value in mapping.fields().items():
            if key.startswith(_LOOP):
                fields |= self._expand_loop(key, value, variables)
            else:
                fields[_fill_in(key, variables)] = self.expand(value, variables)
        return fields

    def _expand_loop(self, key: str, loop: Node, variables: dict[str, str]) -> dict[str, Node]:
        items = loop.items
        texts = self.template.texts(self.expand(items[1], variables)) if len(items) == 3 else None
        fields: dict[str, Node] = {}
        for text in texts or ():
            if self.remaining_nodes > 0:
                body = self.expand(items[2], variables | {items[0].text or "": text})
                fields |= body.fields()
        if texts is None or self.remaining_nodes <= 0:
            self.unknown_loops.append(key.removeprefix(_LOOP))
        return fields


def _fill_in(text: str, variables: dict[str, str]) -> str:
    for name, value in variables.items():
        text = text.replace("${" + name + "}", value).replace("&{" + name + "}", value)
    return text
