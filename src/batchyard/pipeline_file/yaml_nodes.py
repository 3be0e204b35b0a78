"""YAML text as a tree whose every node knows its line and column. Knows nothing of pipelines.

Built from the parser's events, not by PyYAML's constructors: nothing that a tag asks for is ever made, an
alias is a second reference to the same node and no copy of what it holds, and no nesting can exhaust a stack.
Scalars keep the text as it was written (``0.10`` stays ``0.10``), with the kind that YAML sees in it beside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from batchyard.pipeline_file import yaml_problems
from batchyard.pipeline_file.mistakes import WHOLE_FILE, Notes, Place, place_in
from batchyard.units import quoted

if TYPE_CHECKING:
    import yaml

MAX_DEPTH = 40
#: values that all aliases of a file may stand for together: far above any real use, far below an explosion
MAX_ALIASED = 100_000

#: kinds of scalars, as they are named to people
NOTHING, YES_NO, WHOLE, NUMBER, TEXT = "nothing", "yes or no", "whole number", "number", "text"
MERGE = "merge key"

_KINDS = (NOTHING, YES_NO, WHOLE, NUMBER, MERGE)
_KIND = re.compile(
    r"(|~|null|Null|NULL)"
    r"|(yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)"
    # 010 is 8 to some readers of YAML and 10 to others, and 1:30 is 90: neither is a whole number here.
    r"|([-+]?(?:0|[1-9][0-9_]*))"
    r"|([-+]?(?:[0-9][0-9_]*)?\.?[0-9]+(?:[eE][-+]?[0-9]+)?)"
    r"|(<<)"
)
_CORE_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = ("!", _CORE_TAG + "str")
_PLAIN_TAGS = tuple(_CORE_TAG + name for name in ("int", "float", "bool", "null", "seq", "map"))
#: what YAML does not allow in a file; libyaml tells no line for it, so it is looked for beforehand
_NOT_PRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]|\ufffe|\uffff")


@dataclass(slots=True)
class Node(Place):
    #: how many values this is with all aliases written out
    size: int = field(default=1, kw_only=True)


@dataclass(slots=True)
class Scalar(Node):
    text: str
    kind: str


@dataclass(slots=True)
class Sequence(Node):
    items: list[Node]


@dataclass(slots=True)
class Mapping(Node):
    #: key -> where the key stands, its value
    entries: dict[str, tuple[Scalar, Node]]


def parse(text: str, notes: Notes) -> Node | None:
    """The document in ``text``; None where there is none, or it cannot be read (then a mistake is noted)."""
    import yaml  # takes 20 ms, and most commands read no file

    bad = _NOT_PRINTABLE.search(text)
    if bad:
        name = "a NUL byte" if bad[0] == "\0" else f"the control character U+{ord(bad[0]):04X}"
        notes.wrong(place_in(text, bad.start()), f"{name} in the file", "remove it")
        return None
    builder = _Builder(notes)
    try:
        for event in _events(text):
            builder.take(event)
    except _Unreadable:
        return None
    except yaml.MarkedYAMLError as exc:
        yaml_problems.explain(exc, text, builder.open_brackets(), notes)
        return None
    except (yaml.YAMLError, ValueError, OverflowError) as exc:
        # Only the parser written in Python gets here: it lets a few errors of its own conversions through.
        notes.wrong(WHOLE_FILE, f"not YAML: {exc}")
        return None
    return builder.root


class _Unreadable(Exception):
    """A mistake was noted after which there is no point in going on."""


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come yet."""

    node: Sequence | Mapping
    anchor: str | None
    is_flow: bool
    key: Node | None = None
    merges: list[Node] = field(default_factory=list)


class _Builder:
    def __init__(self, notes: Notes) -> None:
        self.root: Node | None = None
        self._notes = notes
        self._open: list[_Open] = []
        self._anchors: dict[str, Node] = {}
        self._aliased = 0
        self._documents = 0
        self._take = {
            "ScalarEvent": self._scalar,
            "SequenceStartEvent": self._sequence,
            "MappingStartEvent": self._mapping,
            "SequenceEndEvent": self._end,
            "MappingEndEvent": self._end,
            "AliasEvent": self._alias,
            "DocumentStartEvent": self._document,
        }

    def take(self, event: yaml.Event) -> None:
        handle = self._take.get(type(event).__name__)
        mark = event.start_mark
        if handle and mark:
            handle(event, mark.line + 1, mark.column + 1)

    def open_brackets(self) -> list[Place]:
        return [frame.node for frame in self._open if frame.is_flow]

    def _document(self, event: Any, line: int, column: int) -> None:
        self._documents += 1
        if self._documents > 1:
            self._notes.wrong(
                Place(line, column),
                'a second document ("---") in the file',
                "write one pipeline a file",
            )
            raise _Unreadable

    def _scalar(self, event: Any, line: int, column: int) -> None:
        self._check_tag(event, line, column)
        text = event.value
        is_plain = event.implicit[0] or event.tag in _PLAIN_TAGS
        match = _KIND.fullmatch(text) if is_plain else None
        kind = _KINDS[match.lastindex - 1] if match and match.lastindex else TEXT
        node = Scalar(line, column, text, kind)
        if event.anchor:
            self._anchors[event.anchor] = node
        self._add(node)

    def _sequence(self, event: Any, line: int, column: int) -> None:
        self._begin(Sequence(line, column, []), event)

    def _mapping(self, event: Any, line: int, column: int) -> None:
        self._begin(Mapping(line, column, {}), event)

    def _begin(self, node: Sequence | Mapping, event: Any) -> None:
        self._check_tag(event, node.line, node.column)
        if len(self._open) >= MAX_DEPTH:
            what = f"lists and mappings nested more than {MAX_DEPTH} deep"
            self._notes.wrong(node, what, "write them flatter")
            raise _Unreadable
        self._open.append(_Open(node, event.anchor, bool(event.flow_style)))
        if event.anchor:
            # Not to be found by this name before its end: it would hold itself, or be taken for another.
            self._anchors.pop(event.anchor, None)

    def _end(self, event: Any, line: int, column: int) -> None:
        frame = self._open.pop()
        if isinstance(frame.node, Mapping):
            self._merge(frame.node, frame.merges)
        if frame.anchor:
            self._anchors[frame.anchor] = frame.node
        self._add(frame.node)

    def _alias(self, event: Any, line: int, column: int) -> None:
        at, name = Place(line, column), event.anchor
        target = self._anchors.get(name)
        if target is None:
            if any(frame.anchor == name for frame in self._open):
                what, instead = f"*{name} is an alias inside its own value", "remove it"
            else:
                what = f"*{name} is an alias, and there is no &{name} before it"
                instead = "put text that begins with * in quotes"
            self._notes.wrong(at, what, instead)
            raise _Unreadable
        self._aliased += target.size
        if self._aliased > MAX_ALIASED:
            what = f"the aliases up to *{name} stand for more than {MAX_ALIASED:,} values"
            self._notes.wrong(at, what, "write the file with fewer aliases")
            raise _Unreadable
        # A shallow copy: the place of the use, the very contents of the original.
        self._add(replace(target, line=line, column=column))

    def _add(self, node: Node) -> None:
        if not self._open:
            self.root = node
            return
        frame = self._open[-1]
        frame.node.size += node.size
        if isinstance(frame.node, Sequence):
            frame.node.items.append(node)
        elif frame.key is None:
            frame.key = node
        else:
            key, frame.key = frame.key, None
            self._put(frame, frame.node, key, node)

    def _put(self, frame: _Open, mapping: Mapping, key: Node, value: Node) -> None:
        if not isinstance(key, Scalar):
            self._notes.wrong(
                key, "a list or mapping is written where a key is expected", "write a word"
            )
        elif key.kind == MERGE:
            frame.merges.append(value)
        elif key.text in mapping.entries:
            first = mapping.entries[key.text][0]
            what = f"a second {quoted(key.text)}: the first is at line {first.line}"
            self._notes.wrong(key, what, "keep one of them")
        else:
            mapping.entries[key.text] = (key, value)

    def _merge(self, mapping: Mapping, merges: list[Node]) -> None:
        for source in _flat(merges):
            if not isinstance(source, Mapping):
                self._notes.wrong(
                    source, '"<<" takes a mapping, and this is not one', "write <<: *name"
                )
                continue
            for key, entry in source.entries.items():
                mapping.entries.setdefault(key, entry)

    def _check_tag(self, event: Any, line: int, column: int) -> None:
        tag = event.tag
        if tag is None or tag in _TEXT_TAGS or tag in _PLAIN_TAGS:
            return
        shown = "!!" + tag.removeprefix(_CORE_TAG) if tag.startswith(_CORE_TAG) else tag
        self._notes.wrong(
            Place(line, column),
            f"the tag {quoted(shown)} is not allowed: a pipeline file contains plain values",
            "remove the tag",
        )


def _events(text: str) -> Iterator[yaml.Event]:
    import yaml

    # libyaml is some twenty times faster; PyYAML has it wherever it was installed from a wheel.
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    events: Iterator[yaml.Event] = yaml.parse(text, Loader=loader)
    return events


def _flat(merges: list[Node]) -> Iterator[Node]:
    for node in merges:
        if isinstance(node, Sequence):
            yield from node.items
        else:
            yield node
