"""Parse YAML or JSON files of other tools, such as cloud-config and templates, into nodes. Pure."""

from __future__ import annotations

import json
from typing import Any

from batchyard import yaml_positions
from batchyard.yaml_positions import Mapping, Node, Scalar, Sequence

MAX_DEPTH = 80


class NotReadableError(Exception):
    """The text is neither YAML nor JSON. ``line`` counts from 1; 0 if it is unknown."""

    def __init__(self, problem: str, line: int = 0) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line


def parse(text: str) -> Node:
    """Return the first document of ``text``. Raises NotReadableError and nothing else."""
    document = yaml_positions.parse(text, MAX_DEPTH)
    if document.root is not None:
        return document.root
    if document.error is None:
        # Reading stops at a fatal problem, if at all, so that the last problem tells why.
        if any(problem.is_fatal for problem in document.problems):
            raise NotReadableError(document.problems[-1].text, document.problems[-1].at.line)
        return Scalar(0, 0)
    # JSON allows a few things that YAML does not, such as "\/".
    try:
        return from_plain(json.loads(text))
    except (ValueError, RecursionError):
        raise _describe(document.error) from None


def _describe(error: Exception) -> NotReadableError:
    import yaml

    if not isinstance(error, yaml.MarkedYAMLError):
        return NotReadableError(str(error))
    mark = error.problem_mark
    return NotReadableError(str(error.problem or error), mark.line + 1 if mark else 0)


def from_plain(value: Any, depth: int = 0) -> Node:
    """Convert a value that json.loads returned to nodes without lines. Raises NotReadableError."""
    if depth > MAX_DEPTH:
        raise NotReadableError(f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict):
        children = {str(key): from_plain(item, depth + 1) for key, item in value.items()}
        return make_mapping(children)
    if isinstance(value, list):
        return Sequence(0, 0, [from_plain(item, depth + 1) for item in value])
    if isinstance(value, str):
        return Scalar(0, 0, value)
    return Scalar(0, 0, "" if value is None else json.dumps(value))


def make_mapping(children: dict[str, Node], line: int = 0) -> Mapping:
    """Return a mapping of these nodes, for values that are not written as one in a file."""
    entries = {key: (Scalar(node.key_line, 0, key), node) for key, node in children.items()}
    return Mapping(line, 0, entries)
