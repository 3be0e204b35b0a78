"""YAML or JSON text as a tree with lines and tags, for files that others wrote: cloud-config and templates. Pure.

Built from the parser's events: nothing that a tag asks for is made, and no depth of nesting exhausts a stack.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

MAX_DEPTH = 80
#: values that all aliases of a file may stand for together
MAX_ALIASED = 50_000


@dataclass(slots=True)
class Node:
    #: a str, a list of nodes, or a dict of text -> node
    value: Any
    #: 1-based; 0 where it is not known
    line: int = 0
    tag: str = ""
    #: a scalar in quotes, or a block: text whatever it looks like
    is_text: bool = False
    #: 1 for a block scalar, whose text begins on the line below
    offset: int = 0
    size: int = field(default=1, compare=False)
    #: where its key stands; 0 where it has none
    key_line: int = 0

    def get(self, key: str) -> Node | None:
        return self.value.get(key) if isinstance(self.value, dict) else None

    def items(self) -> list[Node]:
        return self.value if isinstance(self.value, list) else []

    @property
    def text(self) -> str | None:
        return self.value if isinstance(self.value, str) else None

    @property
    def text_line(self) -> int:
        """Where the first line of a scalar's text stands."""
        return self.line + self.offset


class NotReadable(Exception):
    """The text is neither YAML nor JSON: what is wrong, and where."""

    def __init__(self, what: str, line: int = 0) -> None:
        super().__init__(what)
        self.what = what
        self.line = line


def parse(text: str) -> Node:
    """The first document. Raises NotReadable, and nothing else."""
    import yaml

    try:
        return _from_events(text)
    except yaml.MarkedYAMLError as exc:
        problem = NotReadable(
            str(exc.problem or exc), exc.problem_mark.line + 1 if exc.problem_mark else 0
        )
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as exc:
        problem = NotReadable(str(exc))
    # JSON allows a few things that YAML does not, such as "\/".
    try:
        return from_plain(json.loads(text))
    except (ValueError, RecursionError):
        raise problem from None


def from_plain(value: Any, depth: int = 0) -> Node:
    """What json.loads made, as nodes without lines."""
    if depth > MAX_DEPTH:
        raise NotReadable(f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict):
        return Node({str(key): from_plain(item, depth + 1) for key, item in value.items()})
    if isinstance(value, list):
        return Node([from_plain(item, depth + 1) for item in value])
    if isinstance(value, str):
        return Node(value, is_text=True)
    return Node("" if value is None else json.dumps(value))


def _from_events(text: str) -> Node:
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    open_nodes: list[tuple[Node, str | None]] = []
    keys: list[Node | None] = []
    anchors: dict[str, Node] = {}
    root: Node | None = None
    aliased = 0

    def add(node: Node) -> None:
        nonlocal root
        if not open_nodes:
            root = root or node
            return
        parent = open_nodes[-1][0]
        parent.size += node.size
        if isinstance(parent.value, list):
            parent.value.append(node)
        elif keys[-1] is None:
            keys[-1] = node
        else:
            key, keys[-1] = keys[-1], None
            _put(parent.value, key, node)

    for event in yaml.parse(text, Loader=loader):
        line = event.start_mark.line + 1 if event.start_mark else 0
        name = type(event).__name__
        if name == "ScalarEvent":
            is_block = event.style in ("|", ">")
            node = Node(event.value, line, event.tag or "", event.style is not None, int(is_block))
            if event.anchor:
                anchors[event.anchor] = node
            add(node)
        elif name in ("SequenceStartEvent", "MappingStartEvent"):
            if len(open_nodes) >= MAX_DEPTH:
                raise NotReadable(f"nested more than {MAX_DEPTH} deep", line)
            start: Any = [] if name == "SequenceStartEvent" else {}
            open_nodes.append((Node(start, line, event.tag or ""), event.anchor))
            keys.append(None)
        elif name in ("SequenceEndEvent", "MappingEndEvent"):
            node, anchor = open_nodes.pop()
            keys.pop()
            if anchor:
                anchors[anchor] = node
            add(node)
        elif name == "AliasEvent":
            target = anchors.get(event.anchor) or Node("", line)
            aliased += target.size
            if aliased > MAX_ALIASED:
                raise NotReadable("its aliases stand for too many values", line)
            add(target)
        elif name == "DocumentEndEvent":
            break
    return root or Node("")


def _put(mapping: dict[str, Node], key: Node, value: Node) -> None:
    if isinstance(key.value, str):
        # A merge key's values stand behind the mapping's own.
        if key.value == "<<" and isinstance(value.value, dict):
            for name, item in value.value.items():
                mapping.setdefault(name, item)
        else:
            value.key_line = value.key_line or key.line
            mapping[key.value] = value
