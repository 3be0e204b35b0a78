"""A template as resources whose properties can be asked for, whatever functions stand in them. Pure.

CloudFormation's functions are worked out as far as the template itself says: parameters by their defaults, Fn::Sub and
Fn::Join piece by piece. What stays open is told apart: a check looks only at what is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from batchyard.doctor.yaml_tree import Node

_SUB = re.compile(r"\$\{(!?)([^}]*)\}")
NOTHING = Node({})


@dataclass(frozen=True, slots=True)
class Lines:
    """Text that was put together, with the line of the file that each of its lines comes from."""

    text: str
    lines: tuple[int, ...]

    def at(self, line: int) -> int:
        """The file's line for a line of the text; both from 1, 0 where it is not known."""
        return self.lines[line - 1] if 0 < line <= len(self.lines) else 0


@dataclass(frozen=True, slots=True)
class Resource:
    name: str
    type: str
    properties: Node
    line: int = 0
    metadata: Node = field(default_factory=lambda: NOTHING)

    def get(self, *path: str) -> Node:
        """The property at the path; an empty one where there is none."""
        node = self.properties
        for key in path:
            node = node.get(key) or NOTHING
        return node


@dataclass(frozen=True, slots=True)
class Template:
    name: str
    #: CloudFormation, SAM or Terraform
    kind: str
    resources: tuple[Resource, ...] = ()
    parameters: dict[str, Node] = field(default_factory=dict)
    #: names of resources whose user data is not known yet
    unknown: tuple[str, ...] = ()

    def of_type(self, *types: str) -> list[Resource]:
        return [r for r in self.resources if r.type in types]

    def named(self, name: str) -> Resource | None:
        return next((r for r in self.resources if r.name == name), None)

    def place(self, resource: Resource, node: Node | None = None) -> str:
        line = (node.key_line or node.line if node is not None else 0) or resource.line
        return f"{self.name}:{line} ({resource.name})" if line else f"{self.name} ({resource.name})"

    # -- values -----------------------------------------------------------------------------------------------

    def text(self, node: Node) -> str | None:
        """A scalar, where it can be known."""
        pieces = list(self._pieces(node))
        if any(not is_known for _, _, is_known in pieces) or (not pieces and node.text is None):
            return None
        return "".join(text for text, _, _ in pieces)

    def number(self, node: Node) -> int | None:
        text = self.text(node)
        return int(text) if text and re.fullmatch(r"[0-9]{1,9}", text) else None

    def is_true(self, node: Node) -> bool:
        return (self.text(node) or "").lower() in ("true", "yes", "on", "1")

    def texts(self, node: Node) -> list[str] | None:
        """A list of scalars; None where one of them cannot be known."""
        call = function(node)
        if call and call[0] == "Ref":
            default = self._default(call[1].text or "")
            return None if default is None else [part.strip() for part in default.split(",") if part.strip()]
        if call and call[0] == "Split":
            items = call[1].items()
            text = self.text(items[1]) if len(items) == 2 else None
            return None if text is None else text.split(items[0].text or ",")
        if call or not isinstance(node.value, list):
            text = self.text(node)
            return [text] if text else None
        found = [self.text(item) for item in node.value]
        return None if any(text is None for text in found) else [text for text in found if text]

    def lines(self, node: Node) -> Lines:
        """Text in full; what cannot be known stands as __name__, which no shell takes for anything."""
        text: list[str] = []
        starts: list[int] = []
        for piece, node_at, _ in self._pieces(node):
            for number, line in enumerate(piece.split("\n")):
                # The lines of a block scalar are lines of the file; those of "a\nb" are one.
                here = node_at.text_line + number if node_at.offset else node_at.line
                if number:
                    text.append("\n")
                if number or not starts:
                    starts.append(here)
                elif line and text and text[-1] == "\n":
                    starts[-1] = here  # the piece before ended the line above, and this one begins its own
                if line:
                    text.append(line)
        return Lines("".join(text), tuple(starts))

    def referred(self, node: Node) -> str:
        """The name of the resource that Ref or Fn::GetAtt points at."""
        call = function(node)
        if not call or call[0] not in ("Ref", "GetAtt"):
            return ""
        target = call[1]
        text = target.text if target.text is not None else (target.items()[0].text if target.items() else "")
        return (text or "").partition(".")[0]

    def _pieces(self, node: Node, depth: int = 0) -> Iterator[tuple[str, Node, bool]]:
        """text, the node it stands in, whether it is known."""
        call = function(node)
        if call is None:
            if node.text is not None:
                yield node.text, node, True
            elif node.value:
                yield "__value__", node, False
            return
        name, argument = call
        if depth > 20:
            yield "__deep__", node, False
        elif name == "Base64":
            yield from self._pieces(argument, depth + 1)
        elif name == "Ref":
            default = self._default(argument.text or "")
            yield (f"__{_word(argument.text)}__", node, False) if default is None else (default, node, True)
        elif name == "Sub":
            yield from self._sub(argument)
        elif name == "Join":
            yield from self._join(argument, depth)
        elif name == "If" and len(argument.items()) == 3:
            yield "", node, False
            # Either may come to pass: both are looked at, one after the other.
            for branch in argument.items()[1:]:
                yield from self._pieces(branch, depth + 1)
        else:
            target = argument.text or (argument.items()[0].text if argument.items() else "")
            yield f"__{_word(target)}__", node, False

    def _sub(self, argument: Node) -> Iterator[tuple[str, Node, bool]]:
        template = argument if argument.text is not None else (argument.items() or [NOTHING])[0]
        given = argument.items()[1] if len(argument.items()) > 1 else NOTHING
        is_known = True

        def value(match: re.Match[str]) -> str:
            nonlocal is_known
            if match[1]:
                return "${" + match[2] + "}"
            own = given.get(match[2])
            text = self.text(own) if own is not None else self._default(match[2])
            is_known = is_known and text is not None
            return f"__{_word(match[2])}__" if text is None else text

        text = _SUB.sub(value, template.text or "")
        yield text, template, is_known

    def _join(self, argument: Node, depth: int) -> Iterator[tuple[str, Node, bool]]:
        items = argument.items()
        if len(items) != 2 or function(items[1]) or not isinstance(items[1].value, list):
            yield "__join__", argument, False
            return
        for at, item in enumerate(items[1].value):
            if at and items[0].text:
                yield items[0].text, item, True
            yield from self._pieces(item, depth + 1)

    def _default(self, name: str) -> str | None:
        default = self.parameters[name].get("Default") if name in self.parameters else None
        return None if default is None else default.text


def function(node: Node) -> tuple[str, Node] | None:
    """The CloudFormation function that the node is, by its short or its long name, and its argument."""
    if node.tag.startswith("!") and len(node.tag) > 1 and not node.tag.startswith("!!"):
        return node.tag[1:], Node(node.value, node.line, "", node.is_text, node.offset)
    if isinstance(node.value, dict) and len(node.value) == 1:
        key, argument = next(iter(node.value.items()))
        if key == "Ref" or key.startswith("Fn::"):
            return key.removeprefix("Fn::"), argument
    return None


def _word(text: str | None) -> str:
    return re.sub(r"\W+", "_", text or "", flags=re.ASCII).strip("_") or "value"
