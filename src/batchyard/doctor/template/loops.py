"""Fn::ForEach, as the transform AWS::LanguageExtensions writes it out: each of a list in turn. Pure."""

from __future__ import annotations

from dataclasses import replace

from batchyard.doctor.template.resources import Template, function
from batchyard.doctor.yaml_tree import make_mapping
from batchyard.yaml_positions import Mapping, Node, Scalar, Sequence

_LOOP = "Fn::ForEach::"
#: nodes that all loops of a template may become together
MAX_NODES = 20_000


class _Loops:
    def __init__(self, template: Template) -> None:
        self.template = template
        self.left = MAX_NODES
        #: names of those whose lists are not known
        self.unknown: list[str] = []

    def written_out(self, node: Node, given: dict[str, str]) -> Node:
        """``given`` are the names of the loops around it, and where they are."""
        self.left -= 1
        call = function(node)
        if call and call[0] == "Ref" and (call[1].text or "") in given:
            text = given[call[1].text or ""]
            return Scalar(node.line, 0, text, key_line=node.key_line)
        if isinstance(node, Mapping):
            found: dict[str, Node] = {}
            for key, inner in node.fields().items():
                if key.startswith(_LOOP):
                    found |= self._each(key, inner, given)
                else:
                    found[_filled(key, given)] = self.written_out(inner, given)
            return replace(node, entries=make_mapping(found).entries)
        if isinstance(node, Sequence):
            return replace(node, items=[self.written_out(item, given) for item in node.items])
        if isinstance(node, Scalar) and given:
            return replace(node, text=_filled(node.text, given))
        return node

    def _each(self, key: str, loop: Node, given: dict[str, str]) -> dict[str, Node]:
        items = loop.items
        values = self.template.texts(self.written_out(items[1], given)) if len(items) == 3 else None
        found: dict[str, Node] = {}
        for value in values or ():
            if self.left > 0:
                body = self.written_out(items[2], given | {items[0].text or "": value})
                found |= body.fields()
        if values is None or self.left <= 0:
            self.unknown.append(key.removeprefix(_LOOP))
        return found


def _filled(text: str, given: dict[str, str]) -> str:
    for name, value in given.items():
        text = text.replace("${" + name + "}", value).replace("&{" + name + "}", value)
    return text


def written_out(resources: Node, template: Template) -> tuple[Node, tuple[str, ...]]:
    """The resources without loops, and the names of loops of which nothing can be known."""
    loops = _Loops(template)
    found = loops.written_out(resources, {})
    return found, tuple(loops.unknown)
