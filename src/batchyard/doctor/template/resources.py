"""A template as resources whose properties can be evaluated, with their functions. Pure.

Functions are evaluated as far as the template allows: parameters by their defaults, Fn::Sub and
Fn::Join piece by piece, Fn::FindInMap and Fn::Select by lookup. Values that stay unknown are marked
as such, so that a check judges only what is known.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from batchyard.doctor.template.terraform_references import remove_indexes
from batchyard.yaml_positions import Mapping, Node, Scalar, Sequence

_SUB_REFERENCE = re.compile(r"\$\{(!?)([^}]*)\}")
_SINGLE_REFERENCE = re.compile(r"\$\{([^!}]+)\}")
#: Prefix of a dynamic reference: CloudFormation or EC2 looks the value up later.
DYNAMIC_REFERENCE = "{{resolve:"
#: A line of a text of which nothing is known.
UNKNOWN_LINE = re.compile(r"(?m)^[ \t]*__\w+__[ \t]*$")
#: the end of the headers of a MIME part that is in base64
_BASE64_HEADER = re.compile(
    r"^content-transfer-encoding:[ \t]*(base64)[^\n]*\n(?:[^\n]+\n)*\r?\n\Z",
    re.IGNORECASE | re.MULTILINE,
)
_SSM_PARAMETER_TYPE = "AWS::SSM::Parameter::Value"
_MAX_DEPTH = 20
NOTHING: Node = Mapping(0, 0)


@dataclass(frozen=True, slots=True)
class Lines:
    """Text assembled from a template, with the line of the file that each line comes from."""

    text: str
    lines: tuple[int, ...]
    #: bytes that base64 inside the text adds to it, and that this text does not have
    packed_bytes: int = 0

    def at(self, line: int) -> int:
        """Return the file's line for a line of the text; both count from 1, 0 is unknown."""
        return self.lines[line - 1] if 0 < line <= len(self.lines) else 0


class Piece(NamedTuple):
    """A part of a text: the node that it comes from, and whether its value is known."""

    text: str
    node: Node
    is_known: bool
    #: the text is in a Fn::Base64 inside another: the user data has it in base64
    is_packed: bool = False


@dataclass(frozen=True, slots=True)
class Resource:
    name: str
    type: str
    properties: Node
    line: int = 0
    metadata: Node = field(default_factory=lambda: NOTHING)
    #: Name of the condition under which the resource is created; empty for none.
    condition: str = ""

    def get(self, *path: str) -> Node:
        """Return the property at the path; an empty mapping if there is none."""
        node = self.properties
        for key in path:
            node = node.get(key) or NOTHING
        return node


@dataclass(frozen=True, slots=True)
class Template:
    name: str
    #: CloudFormation, SAM or Terraform.
    kind: str
    resources: tuple[Resource, ...] = ()
    parameters: dict[str, Node] = field(default_factory=dict)
    #: Names of the resources of a Terraform plan whose user data is not known yet.
    unknown_user_data: tuple[str, ...] = ()
    mappings: dict[str, Node] = field(default_factory=dict)
    conditions: dict[str, Node] = field(default_factory=dict)
    #: Names of the Fn::ForEach loops that could not be expanded.
    unknown_loops: tuple[str, ...] = ()
    #: parameter -> a value that replaces its default; None for an unknown value
    overrides: dict[str, str | None] = field(default_factory=dict)

    def of_type(self, *types: str) -> list[Resource]:
        return [resource for resource in self.resources if resource.type in types]

    def find(self, name: str) -> Resource | None:
        return next((resource for resource in self.resources if resource.name == name), None)

    def place(self, resource: Resource, node: Node | None = None) -> str:
        """Return the place of a finding: file, line and resource."""
        line = (node.key_line or node.line if node is not None else 0) or resource.line
        return f"{self.name}:{line} ({resource.name})" if line else f"{self.name} ({resource.name})"

    @property
    def has_default_parameters(self) -> bool:
        return not self.overrides

    # -- values ----------------------------------------------------------------------------------

    def text(self, node: Node) -> str | None:
        """Return the value of a scalar; None if it is unknown."""
        pieces = list(self._pieces(node))
        if not all(piece.is_known for piece in pieces) or (not pieces and node.text is None):
            return None
        return "".join(piece.text for piece in pieces)

    def text_of(self, node: Node, key: str) -> str | None:
        """Return the text of a property; None if it is missing or unknown."""
        value = node.get(key)
        return None if value is None else self.text(value)

    def number(self, node: Node) -> int | None:
        text = self.text(node)
        return int(text) if text and re.fullmatch(r"[0-9]{1,9}", text) else None

    def is_true(self, node: Node) -> bool:
        return (self.text(node) or "").lower() in ("true", "yes", "on", "1")

    def texts(self, node: Node) -> list[str] | None:
        """Return the texts of a list; None if any of them is unknown."""
        texts = self._evaluate_list(node)
        return None if texts is None or None in texts else [text for text in texts if text]

    def known_texts(self, node: Node) -> list[str]:
        """Return the texts of a list that are known."""
        return [text for text in self._evaluate_list(node) or () if text]

    def lines(self, node: Node) -> Lines:
        """Return the whole text. An unknown value is written __name__, plain text to a shell."""
        text: list[str] = []
        starts: list[int] = []
        pieces, packed_bytes = _unpack_parts(self._pieces(node))
        for piece in pieces:
            for number, line in enumerate(piece.text.split("\n")):
                file_line = _file_line(piece.node, number)
                if number:
                    text.append("\n")
                if number or not starts:
                    starts.append(file_line)
                elif line and text and text[-1] == "\n":
                    # The previous piece ended its line; this piece begins a new one.
                    starts[-1] = file_line
                if line:
                    text.append(line)
        return Lines("".join(text), tuple(starts), packed_bytes)

    def target_name(self, node: Node) -> str:
        """Return the name of the resource that Ref, Fn::GetAtt or a lone Fn::Sub refers to."""
        name, argument = function_call(node) or ("", NOTHING)
        if name == "Sub":
            return self._target_of_sub(argument)
        if name == "Join":
            items = argument.items[1].items if len(argument.items) == 2 else []
            return self.target_name(items[0]) if len(items) == 1 else ""
        if name in ("Ref", "GetAtt"):
            return self._target_of_ref((argument.items or [argument])[0].text or "")
        return ""

    def _target_of_ref(self, text: str) -> str:
        # Addresses of Terraform contain dots.
        for resource in self.resources:
            if text and remove_indexes(resource.name) == text:
                return resource.name
        return text.partition(".")[0]

    def _target_of_sub(self, argument: Node) -> str:
        template, variables = _split_sub(argument)
        match = _SINGLE_REFERENCE.fullmatch(template.text or "")
        if match is None:
            return ""
        variable = variables.get(match[1])
        return match[1].partition(".")[0] if variable is None else self.target_name(variable)

    def find_in_map(self, argument: Node) -> Node | None:
        """Return the value that Fn::FindInMap selects; None if a key is unknown or missing."""
        items = argument.items
        names = [self.text(item) for item in items[:3]]
        if len(names) < 3 or None in names:
            return None
        node = self.mappings.get(names[0] or "")
        for name in names[1:]:
            node = node.get(name or "") if node is not None else None
        if node is None and len(items) > 3:
            return items[3].get("DefaultValue")
        return node

    def ssm_path(self, node: Node) -> str:
        """Return the path in SSM that the value is looked up at; empty if it is not looked up."""
        name, argument = function_call(node) or ("", NOTHING)
        parameter = argument.text or "" if name == "Ref" else ""
        default = (self.parameters.get(parameter) or NOTHING).get("Default")
        if default is None:
            text = self.lines(node).text
            return text if "resolve:ssm" in text else ""
        text = default.text or ""
        return text if self.is_from_ssm(parameter) or "resolve:ssm" in text else ""

    def is_from_ssm(self, parameter: str) -> bool:
        kind = (self.parameters.get(parameter) or NOTHING).get("Type")
        return kind is not None and (kind.text or "").startswith(_SSM_PARAMETER_TYPE)

    def parameter_value(self, name: str) -> str | None:
        """Return the parameter's override or default; None if neither is known."""
        if name in self.overrides:
            return self.overrides[name]
        default = self.parameters[name].get("Default") if name in self.parameters else None
        if default is None or self.is_from_ssm(name) or DYNAMIC_REFERENCE in (default.text or ""):
            return None
        return default.text

    # -- functions -------------------------------------------------------------------------------

    def _evaluate_list(self, node: Node) -> list[str | None] | None:
        name, argument = function_call(node) or ("", NOTHING)
        if name == "Ref":
            return self._parameter_list(argument.text or "")
        if name == "Split":
            return self._evaluate_split(argument)
        if name or not isinstance(node, Sequence):
            text = self.text(node)
            return [text] if text else None
        return [self.text(item) for item in node.items]

    def _parameter_list(self, name: str) -> list[str | None] | None:
        value = self.parameter_value(name)
        return None if value is None else [part.strip() for part in value.split(",")]

    def _evaluate_split(self, argument: Node) -> list[str | None] | None:
        if len(argument.items) != 2:
            return None
        separator, source = argument.items
        text = self.text(source)
        return None if text is None else [*text.split(separator.text or ",")]

    def _pieces(self, node: Node, depth: int = 0, is_in_base64: bool = False) -> Iterator[Piece]:
        """Yield the text of a scalar, in the pieces that Fn::Join and Fn::Sub make it of."""
        call = function_call(node)
        if call is None:
            if node.text is not None:
                yield Piece(node.text, node, DYNAMIC_REFERENCE not in node.text)
            elif not node.is_empty:
                yield Piece("__value__", node, False)
        elif depth > _MAX_DEPTH:
            yield Piece("__deep__", node, False)
        else:
            yield from self._pieces_of_call(node, *call, depth, is_in_base64)

    def _pieces_of_call(
        self, node: Node, name: str, argument: Node, depth: int, is_in_base64: bool
    ) -> Iterator[Piece]:
        in_map = self.find_in_map(argument) if name == "FindInMap" else None
        if name == "Base64" and is_in_base64:
            yield self._pack(argument, depth)
        elif name == "Base64":
            yield from self._pieces(argument, depth + 1, is_in_base64=True)
        elif name == "Ref":
            yield _make_piece(self.parameter_value(argument.text or ""), node, argument.text)
        elif name == "Sub":
            yield self._substitute(argument)
        elif name == "Join":
            yield from self._join(argument, depth, is_in_base64)
        elif name == "Select":
            yield self._select(argument, node)
        elif in_map is not None:
            yield from self._pieces(in_map, depth + 1, is_in_base64)
        else:
            yield _make_piece(None, node, argument.text or _join_texts(argument.items[:2]))

    def _pack(self, argument: Node, depth: int) -> Piece:
        """Return the text of a Fn::Base64 inside another, as CDK makes it for each MIME part."""
        pieces = list(self._pieces(argument, depth + 1))
        source = pieces[0].node if len(pieces) == 1 else argument
        is_known = all(piece.is_known for piece in pieces)
        return Piece("".join(piece.text for piece in pieces), source, is_known, is_packed=True)

    def _substitute(self, argument: Node) -> Piece:
        template, variables = _split_sub(argument)
        is_known = True

        def replace_reference(match: re.Match[str]) -> str:
            nonlocal is_known
            is_literal, name = match[1], match[2]
            if is_literal:
                return "${" + name + "}"
            variable = variables.get(name)
            text = self.parameter_value(name) if variable is None else self.text(variable)
            if text is not None and variable is not None and _is_base64(variable):
                text = _encode(text)
            is_known = is_known and text is not None
            return f"__{_to_word(name)}__" if text is None else text

        text = _SUB_REFERENCE.sub(replace_reference, template.text or "")
        return Piece(text, template, is_known)

    def _join(self, argument: Node, depth: int, is_in_base64: bool) -> Iterator[Piece]:
        if len(argument.items) != 2:
            yield Piece("__join__", argument, False)
            return
        separator, values = argument.items
        is_function = function_call(values) is not None
        texts = self.texts(values) if is_function else None
        if texts is not None:
            yield Piece((separator.text or "").join(texts), values, True)
        elif is_function or not isinstance(values, Sequence):
            yield Piece("__join__", argument, False)
        else:
            for position, item in enumerate(values.items):
                if position and separator.text:
                    yield Piece(separator.text, item, True)
                yield from self._pieces(item, depth + 1, is_in_base64)

    def _select(self, argument: Node, node: Node) -> Piece:
        if len(argument.items) != 2:
            return _make_piece(None, node, "select")
        index = self.number(argument.items[0])
        texts = self._evaluate_list(argument.items[1]) or []
        text = texts[index] if index is not None and index < len(texts) else None
        return _make_piece(text, node, "select")


def function_call(node: Node) -> tuple[str, Node] | None:
    """Return name and argument of the CloudFormation function that the node is; None for values.

    The name has no prefix: "Sub" for both `!Sub` and `Fn::Sub`.
    """
    if node.tag.startswith("!") and len(node.tag) > 1 and not node.tag.startswith("!!"):
        return node.tag[1:], replace(node, tag="", key_line=0)
    if len(node.entries) == 1:
        key, (_, argument) = next(iter(node.entries.items()))
        if key == "Ref" or key.startswith("Fn::"):
            return key.removeprefix("Fn::"), argument
    return None


def _is_base64(node: Node) -> bool:
    call = function_call(node)
    return call is not None and call[0] == "Base64"


def _encode(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "replace")).decode()


def _unpack_parts(pieces: Iterable[Piece]) -> tuple[list[Piece], int]:
    """Return the pieces with MIME parts in base64 as plain parts, and the bytes that this saves.

    A plain part keeps its lines, so that each leads back to the template.
    """
    unpacked: list[Piece] = []
    packed_bytes = 0
    for piece in pieces:
        if piece.is_packed:
            header = unpacked[-1] if unpacked else None
            match = _BASE64_HEADER.search(header.text) if header is not None else None
            if header is not None and match is not None:
                text = f"{header.text[: match.start(1)]}8bit{header.text[match.end(1) :]}"
                unpacked[-1] = header._replace(text=text)
                packed_bytes += len(_encode(piece.text)) - len(
                    piece.text.encode("utf-8", "replace")
                )
            else:
                piece = piece._replace(text=_encode(piece.text))
        unpacked.append(piece)
    return unpacked, packed_bytes


def _split_sub(argument: Node) -> tuple[Node, Node]:
    """Return the text of Fn::Sub, and its own variables."""
    if argument.text is not None:
        return argument, NOTHING
    template, variables, *_ = [*argument.items, NOTHING, NOTHING]
    return template, variables


def _join_texts(nodes: list[Node]) -> str:
    return ".".join(node.text or "" for node in nodes)


def _file_line(node: Node, number: int) -> int:
    """Return the file's line of a line of the node's text; ``number`` counts from 0.

    The lines of a block scalar are lines of the file; those of "a\\nb" are all on one.
    """
    is_block = isinstance(node, Scalar) and node.is_block
    return node.text_line + number if is_block else node.line


def _make_piece(text: str | None, node: Node, name: str | None) -> Piece:
    if text is None:
        return Piece(f"__{_to_word(name)}__", node, False)
    return Piece(text, node, True)


def _to_word(text: str | None) -> str:
    return re.sub(r"\W+", "_", text or "", flags=re.ASCII).strip("_") or "value"
