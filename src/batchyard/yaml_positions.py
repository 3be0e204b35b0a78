"""Parse YAML text into a tree whose nodes carry their line and column. Pure.

The tree is built from the parser's events, not by PyYAML's constructors: no tag ever constructs an
object, an alias refers to the same contents instead of copying them, and deep nesting cannot
exhaust the stack. Scalars keep their text as written (``0.10`` stays ``0.10``), together with the
kind that YAML gives it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from batchyard.errors import Place
from batchyard.units import quote

if TYPE_CHECKING:
    import yaml

MAX_DEPTH = 40
#: Values that all aliases of a file may expand to: far above any real use, far below an explosion.
MAX_ALIASED_VALUES = 100_000

#: Kinds of scalars, in the words of messages.
NOTHING, YES_NO, WHOLE, NUMBER, TEXT = "nothing", "yes or no", "whole number", "number", "text"
MERGE = "merge key"

_KINDS = (NOTHING, YES_NO, WHOLE, NUMBER, MERGE)
_KIND = re.compile(
    r"(|~|null|Null|NULL)"
    r"|(yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)"
    # Readers of YAML disagree on 010 (8 or 10) and 1:30 (90 or text): both count as text.
    r"|([-+]?(?:0|[1-9][0-9_]*))"
    r"|([-+]?(?:[0-9][0-9_]*)?\.?[0-9]+(?:[eE][-+]?[0-9]+)?)"
    r"|(<<)"
)
_CORE_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = ("!", _CORE_TAG + "str")
_PLAIN_TAGS = tuple(_CORE_TAG + name for name in ("int", "float", "bool", "null", "seq", "map"))


@dataclass(slots=True)
class Node(Place):
    """A scalar has ``text``, a list has ``items``, a mapping has ``entries``."""

    tag: str = field(default="", kw_only=True)
    #: Number of values in this node with every alias expanded.
    size: int = field(default=1, kw_only=True, compare=False)
    #: Line of the node's key in its mapping; 0 for a node without a key.
    key_line: int = field(default=0, kw_only=True)

    @property
    def text(self) -> str | None:
        return None

    @property
    def items(self) -> list[Node]:
        return []

    @property
    def entries(self) -> dict[str, tuple[Scalar, Node]]:
        return {}

    @property
    def text_line(self) -> int:
        """Line on which the text of a scalar begins."""
        return self.line

    def get(self, key: str) -> Node | None:
        """Return the value of ``key`` if this is a mapping that has it, else None."""
        entry = self.entries.get(key)
        return entry[1] if entry else None

    def fields(self) -> dict[str, Node]:
        """Return the values of a mapping by key; an empty dict for any other node."""
        return {key: value for key, (_, value) in self.entries.items()}

    @property
    def is_empty(self) -> bool:
        """True for an empty scalar, list or mapping."""
        return not (self.text or self.items or self.entries)

    def children(self) -> list[Node]:
        """Return the values of a mapping or the items of a list."""
        return [value for _, value in self.entries.values()] or self.items


@dataclass(slots=True)
class Scalar(Node):
    text: str = ""
    kind: str = TEXT
    #: A block scalar (``|`` or ``>``): its text begins on the line below.
    is_block: bool = False

    @property
    def text_line(self) -> int:
        return self.line + self.is_block


@dataclass(slots=True)
class Sequence(Node):
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Mapping(Node):
    #: key -> the node of the key, the node of the value
    entries: dict[str, tuple[Scalar, Node]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Problem:
    """A defect of a document that the YAML parser itself accepts."""

    at: Place
    text: str
    #: What to write instead.
    suggestion: str
    #: True if the tree is not what the author meant, so that its values need not be checked.
    is_fatal: bool = False


@dataclass(slots=True)
class Document:
    """The first document of a text: its tree, and everything that is wrong with the text."""

    #: None if the text has no document, or none that could be read to its end.
    root: Node | None
    problems: list[Problem]
    #: The parser's own error, if it raised one.
    error: Exception | None
    #: The [ and { that were not closed when parsing ended.
    open_brackets: list[Place]


def parse(text: str, max_depth: int = MAX_DEPTH) -> Document:
    """Parse the first document of ``text``. Never raises for any text."""
    import yaml  # takes 20 ms, and most commands read no file

    builder = _Builder(max_depth)
    error: Exception | None = None
    # libyaml is some twenty times faster; PyYAML has it wherever it was installed from a wheel.
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for event in yaml.parse(text, Loader=loader):
            builder.add_event(event)
    except _StopReadingError:
        pass
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as exc:
        # The parser written in Python lets a few errors of its own conversions through.
        error = exc
    return Document(builder.root, builder.problems, error, builder.open_brackets())


class _StopReadingError(Exception):
    """A fatal problem was recorded; the remaining events are not needed."""


@dataclass(slots=True)
class _Frame:
    """A list or mapping whose end has not been reached."""

    node: Sequence | Mapping
    anchor: str | None
    is_flow: bool
    key: Node | None = None
    merges: list[Node] = field(default_factory=list)


class _Builder:
    """Builds the tree from the parser's events."""

    def __init__(self, max_depth: int) -> None:
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._max_depth = max_depth
        self._frames: list[_Frame] = []
        self._anchors: dict[str, Node] = {}
        self._aliased_values = 0
        self._documents = 0
        self._handlers = {
            "ScalarEvent": self._add_scalar,
            "SequenceStartEvent": self._begin_sequence,
            "MappingStartEvent": self._begin_mapping,
            "SequenceEndEvent": self._end,
            "MappingEndEvent": self._end,
            "AliasEvent": self._add_alias,
            "DocumentStartEvent": self._begin_document,
        }

    def add_event(self, event: yaml.Event) -> None:
        handle = self._handlers.get(type(event).__name__)
        mark = event.start_mark
        if handle and mark:
            handle(event, mark.line + 1, mark.column + 1)

    def open_brackets(self) -> list[Place]:
        return [frame.node for frame in self._frames if frame.is_flow]

    def _report(self, at: Place, text: str, suggestion: str, is_fatal: bool = False) -> None:
        self.problems.append(Problem(at, text, suggestion, is_fatal))

    def _begin_document(self, event: Any, line: int, column: int) -> None:
        self._documents += 1
        if self._documents > 1:
            problem = 'a second document ("---") in the file'
            self._report(Place(line, column), problem, "write one pipeline a file", is_fatal=True)
            raise _StopReadingError

    def _add_scalar(self, event: Any, line: int, column: int) -> None:
        self._check_tag(event, line, column)
        text = event.value
        is_plain = event.implicit[0] or event.tag in _PLAIN_TAGS
        match = _KIND.fullmatch(text) if is_plain else None
        kind = _KINDS[match.lastindex - 1] if match and match.lastindex else TEXT
        node = Scalar(line, column, text, kind, event.style in ("|", ">"), tag=event.tag or "")
        if event.anchor:
            self._anchors[event.anchor] = node
        self._add(node)

    def _begin_sequence(self, event: Any, line: int, column: int) -> None:
        self._begin(Sequence(line, column, tag=event.tag or ""), event)

    def _begin_mapping(self, event: Any, line: int, column: int) -> None:
        self._begin(Mapping(line, column, tag=event.tag or ""), event)

    def _begin(self, node: Sequence | Mapping, event: Any) -> None:
        self._check_tag(event, node.line, node.column)
        if len(self._frames) >= self._max_depth:
            problem = f"lists and mappings nested more than {self._max_depth} deep"
            self._report(node, problem, "write them flatter", is_fatal=True)
            raise _StopReadingError
        self._frames.append(_Frame(node, event.anchor, bool(event.flow_style)))
        if event.anchor:
            # The name stays unknown until the node ends: no node may contain itself.
            self._anchors.pop(event.anchor, None)

    def _end(self, event: Any, line: int, column: int) -> None:
        frame = self._frames.pop()
        if isinstance(frame.node, Mapping):
            self._merge(frame.node, frame.merges)
        if frame.anchor:
            self._anchors[frame.anchor] = frame.node
        self._add(frame.node)

    def _add_alias(self, event: Any, line: int, column: int) -> None:
        at, name = Place(line, column), event.anchor
        target = self._anchors.get(name)
        if target is None:
            self._report_unknown_alias(at, name)
            self._add(Scalar(line, column))
            return
        self._aliased_values += target.size
        if self._aliased_values > MAX_ALIASED_VALUES:
            problem = f"the aliases up to *{name} stand for more than {MAX_ALIASED_VALUES:,} values"
            self._report(at, problem, "write the file with fewer aliases", is_fatal=True)
            raise _StopReadingError
        # A shallow copy: the position of the alias, the contents of the original.
        self._add(replace(target, line=line, column=column))

    def _report_unknown_alias(self, at: Place, name: str) -> None:
        if any(frame.anchor == name for frame in self._frames):
            problem, suggestion = f"*{name} is an alias inside its own value", "remove it"
        else:
            problem = f"*{name} is an alias, and there is no &{name} before it"
            suggestion = "put text that begins with * in quotes"
        self._report(at, problem, suggestion, is_fatal=True)

    def _add(self, node: Node) -> None:
        if not self._frames:
            self.root = node
            return
        frame = self._frames[-1]
        frame.node.size += node.size
        if isinstance(frame.node, Sequence):
            frame.node.items.append(node)
        elif frame.key is None:
            frame.key = node
        else:
            key, frame.key = frame.key, None
            self._put(frame, frame.node, key, node)

    def _put(self, frame: _Frame, mapping: Mapping, key: Node, value: Node) -> None:
        if not isinstance(key, Scalar):
            self._report(
                key, "a list or mapping is written where a key is expected", "write a word"
            )
            return
        if key.kind == MERGE:
            frame.merges.append(value)
            return
        value.key_line = key.line
        if key.text in mapping.entries:
            first = mapping.entries[key.text][0]
            problem = f"a second {quote(key.text)}: the first is at line {first.line}"
            self._report(key, problem, "keep one of them")
            # The last value counts, as for most readers of YAML.
            key = first
        mapping.entries[key.text] = (key, value)

    def _merge(self, mapping: Mapping, merges: list[Node]) -> None:
        for source in _flatten(merges):
            if not isinstance(source, Mapping):
                problem = '"<<" takes a mapping, and this is not one'
                self._report(source, problem, "write <<: *name")
                continue
            for key, entry in source.entries.items():
                mapping.entries.setdefault(key, entry)

    def _check_tag(self, event: Any, line: int, column: int) -> None:
        tag = event.tag
        if tag is None or tag in _TEXT_TAGS or tag in _PLAIN_TAGS:
            return
        tag_text = "!!" + tag.removeprefix(_CORE_TAG) if tag.startswith(_CORE_TAG) else tag
        problem = f"the tag {quote(tag_text)} is not allowed: a pipeline file contains plain values"
        self._report(Place(line, column), problem, "remove the tag")


def _flatten(merges: list[Node]) -> Iterator[Node]:
    for node in merges:
        if isinstance(node, Sequence):
            yield from node.items
        else:
            yield node
