"""A template as resources whose properties can be asked for, whatever functions stand in them. Pure.

CloudFormation's functions are worked out as far as the template itself says: parameters by their defaults, Fn::Sub and
Fn::Join piece by piece, maps and lists by what is asked of them. What stays open is told apart: a check looks only at
what is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from batchyard.doctor.template.references import bare
from batchyard.yaml_positions import Mapping, Node, Scalar, Sequence

_SUB = re.compile(r"\$\{(!?)([^}]*)\}")
_ONE_NAME = re.compile(r"\$\{([^!}]+)\}")
#: a value that CloudFormation, or EC2, looks up when it comes to it
LOOKED_UP = "{{resolve:"
#: a line of a text of which nothing is known
OPEN_LINE = re.compile(r"(?m)^[ \t]*__\w+__[ \t]*$")
_FROM_SSM = "AWS::SSM::Parameter::Value"
NOTHING: Node = Mapping(0, 0)


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
    #: the name of the condition that it hangs on
    condition: str = ""

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
    mappings: dict[str, Node] = field(default_factory=dict)
    conditions: dict[str, Node] = field(default_factory=dict)
    #: names of loops that could not be written out
    loops: tuple[str, ...] = ()
    #: parameter -> its value where that is not the default; None where it is not known
    overrides: dict[str, str | None] = field(default_factory=dict)

    def of_type(self, *types: str) -> list[Resource]:
        return [r for r in self.resources if r.type in types]

    def named(self, name: str) -> Resource | None:
        return next((r for r in self.resources if r.name == name), None)

    def place(self, resource: Resource, node: Node | None = None) -> str:
        line = (node.key_line or node.line if node is not None else 0) or resource.line
        return f"{self.name}:{line} ({resource.name})" if line else f"{self.name} ({resource.name})"

    @property
    def is_by_default(self) -> bool:
        """Whether its parameters are what they are when nobody says otherwise."""
        return not any(name in self.parameters for name in self.overrides)

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
        found = self._each(node)
        return None if found is None or None in found else [text for text in found if text]

    def known(self, node: Node) -> list[str]:
        """Those of a list of scalars that can be known."""
        return [text for text in self._each(node) or () if text]

    def _each(self, node: Node) -> list[str | None] | None:
        name, argument = function(node) or ("", NOTHING)
        if name == "Ref":
            default = self.default(argument.text or "")
            return None if default is None else [part.strip() for part in default.split(",")]
        if name == "Split":
            items = argument.items
            text = self.text(items[1]) if len(items) == 2 else None
            return None if text is None else [*text.split(items[0].text or ",")]
        if name or not isinstance(node, Sequence):
            text = self.text(node)
            return [text] if text else None
        return [self.text(item) for item in node.items]

    def lines(self, node: Node) -> Lines:
        """Text in full; what cannot be known stands as __name__, which no shell takes for anything."""
        text: list[str] = []
        starts: list[int] = []
        for piece, node_at, _ in self._pieces(node):
            for number, line in enumerate(piece.split("\n")):
                # The lines of a block scalar are lines of the file; those of "a\nb" are one.
                is_block = isinstance(node_at, Scalar) and node_at.is_block
                here = node_at.line + 1 + number if is_block else node_at.line
                if number:
                    text.append("\n")
                if number or not starts:
                    starts.append(here)
                elif line and text and text[-1] == "\n":
                    starts[-1] = (
                        here  # the piece before ended the line above, and this one begins its own
                    )
                if line:
                    text.append(line)
        return Lines("".join(text), tuple(starts))

    def referred(self, node: Node) -> str:
        """The name of the resource that Ref, Fn::GetAtt, or Fn::Sub with nothing else in it points at."""
        name, target = function(node) or ("", NOTHING)
        first = target.items[0] if target.items else target
        if name == "Sub":
            match = _ONE_NAME.fullmatch(first.text or "")
            own = target.items[1].get(match[1]) if match and len(target.items) > 1 else None
            if own is not None:
                return self.referred(own)
            return match[1].partition(".")[0] if match else ""
        if name == "Join" and len(target.items) == 2 and len(target.items[1].items) == 1:
            return self.referred(target.items[1].items[0])
        text = first.text or "" if name in ("Ref", "GetAtt") else ""
        # Names of Terraform have dots in them.
        whole = (
            resource.name for resource in self.resources if text and bare(resource.name) == text
        )
        return next(whole, text.partition(".")[0])

    def in_map(self, argument: Node) -> Node | None:
        """What Fn::FindInMap finds; None where a key is not known, or not there."""
        items = argument.items
        names = [self.text(item) for item in items[:3]]
        if len(names) < 3 or None in names:
            return None
        node = self.mappings.get(names[0] or "")
        for name in names[1:]:
            node = node.get(name or "") if node is not None else None
        return (
            node if node is not None else items[3].get("DefaultValue") if len(items) > 3 else None
        )

    def looked_up(self, node: Node) -> str:
        """The path in SSM that the value comes from; empty where it does not."""
        name, argument = function(node) or ("", NOTHING)
        default = (
            (self.parameters.get(argument.text or "") or NOTHING).get("Default")
            if name == "Ref"
            else None
        )
        text = (default.text or "") if default is not None else self.lines(node).text
        is_path = default is not None and self.is_from_ssm(argument.text or "")
        return text if is_path or "resolve:ssm" in text else ""

    def is_from_ssm(self, parameter: str) -> bool:
        kind = (self.parameters.get(parameter) or NOTHING).get("Type")
        return kind is not None and (kind.text or "").startswith(_FROM_SSM)

    def _pieces(self, node: Node, depth: int = 0) -> Iterator[tuple[str, Node, bool]]:
        """text, the node it stands in, whether it is known."""
        call = function(node)
        if call is None:
            if node.text is not None:
                yield node.text, node, LOOKED_UP not in node.text
            elif not node.is_empty:
                yield "__value__", node, False
            return
        name, argument = call
        if depth > 20:
            yield "__deep__", node, False
        elif name == "Base64":
            yield from self._pieces(argument, depth + 1)
        elif name == "Ref":
            default = self.default(argument.text or "")
            yield (
                (f"__{_word(argument.text)}__", node, False)
                if default is None
                else (default, node, True)
            )
        elif name == "Sub":
            yield from self._sub(argument)
        elif name == "Join":
            yield from self._join(argument, depth)
        elif name == "Select":
            yield from self._select(argument, node)
        elif name == "FindInMap" and (found := self.in_map(argument)) is not None:
            yield from self._pieces(found, depth + 1)
        else:
            target = argument.text or ".".join(item.text or "" for item in argument.items[:2])
            yield f"__{_word(target)}__", node, False

    def _sub(self, argument: Node) -> Iterator[tuple[str, Node, bool]]:
        template = argument if argument.text is not None else (argument.items or [NOTHING])[0]
        given = argument.items[1] if len(argument.items) > 1 else NOTHING
        is_known = True

        def value(match: re.Match[str]) -> str:
            nonlocal is_known
            if match[1]:
                return "${" + match[2] + "}"
            own = given.get(match[2])
            text = self.text(own) if own is not None else self.default(match[2])
            is_known = is_known and text is not None
            return f"__{_word(match[2])}__" if text is None else text

        text = _SUB.sub(value, template.text or "")
        yield text, template, is_known

    def _join(self, argument: Node, depth: int) -> Iterator[tuple[str, Node, bool]]:
        items = argument.items
        texts = self.texts(items[1]) if len(items) == 2 and function(items[1]) else None
        if texts is not None:
            yield (items[0].text or "").join(texts), items[1], True
            return
        if len(items) != 2 or function(items[1]) or not isinstance(items[1], Sequence):
            yield "__join__", argument, False
            return
        for at, item in enumerate(items[1].items):
            if at and items[0].text:
                yield items[0].text, item, True
            yield from self._pieces(item, depth + 1)

    def _select(self, argument: Node, node: Node) -> Iterator[tuple[str, Node, bool]]:
        items = argument.items
        at = self.number(items[0]) if len(items) == 2 else None
        found = self._each(items[1]) if len(items) == 2 else None
        text = found[at] if found is not None and at is not None and at < len(found) else None
        yield ("__select__", node, False) if text is None else (text, node, True)

    def default(self, name: str) -> str | None:
        """What the parameter is, here."""
        if name in self.overrides:
            return self.overrides[name]
        default = self.parameters[name].get("Default") if name in self.parameters else None
        return (
            None
            if default is None or self.is_from_ssm(name) or LOOKED_UP in (default.text or "")
            else default.text
        )


def function(node: Node) -> tuple[str, Node] | None:
    """The CloudFormation function that the node is, by its short or its long name, and its argument."""
    if node.tag.startswith("!") and len(node.tag) > 1 and not node.tag.startswith("!!"):
        return node.tag[1:], replace(node, tag="", key_line=0)
    if len(node.entries) == 1:
        key, (_, argument) = next(iter(node.entries.items()))
        if key == "Ref" or key.startswith("Fn::"):
            return key.removeprefix("Fn::"), argument
    return None


def _word(text: str | None) -> str:
    return re.sub(r"\W+", "_", text or "", flags=re.ASCII).strip("_") or "value"
