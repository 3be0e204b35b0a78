"""Read a file with the parameters and tags of an environment, or raise all its mistakes.

    parameters:
      Zones: 3
      GpuInstanceTypes: [g5.xlarge, g6.xlarge]
    tags:
      team: vision

The file is about the whole environment: a deployment takes the parameters of its templates.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from batchyard.infra import catalogue
from batchyard.pipeline_file import yaml_parsing
from batchyard.pipeline_file.mistakes import WHOLE_FILE, Mistakes
from batchyard.pipeline_file.text_files import read_text, unreadable_problem
from batchyard.units import quote
from batchyard.yaml_positions import NOTHING, Mapping, Node, Scalar, Sequence

_KEYS = ("parameters", "tags")
_EXAMPLE = "write `parameters:` with NAME: VALUE under it"
_MAX_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class ParameterFile:
    parameters: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


def read(path: Path) -> ParameterFile:
    """Return the contents of a parameter file. Raises PipelineFileError with all mistakes."""
    mistakes = Mistakes(str(path))
    root = _read_root(path, mistakes)
    content = ParameterFile()
    if root is not None:
        for key, (key_node, node) in root.entries.items():
            if key == "parameters":
                _read_parameters(node, mistakes, content.parameters)
            elif key == "tags":
                _read_tags(node, mistakes, content.tags)
            else:
                suggestion = mistakes.did_you_mean(key, _KEYS, _EXAMPLE)
                mistakes.add(key_node, f"unknown key {quote(key)}", suggestion)
    mistakes.finish()
    return content


def _read_root(path: Path, mistakes: Mistakes) -> Mapping | None:
    try:
        text = read_text(path, mistakes, _MAX_BYTES)
    except OSError as exc:
        mistakes.add(WHOLE_FILE, *unreadable_problem(path, exc, mistakes))
        return None
    if text is None:
        return None
    count = mistakes.count
    node = yaml_parsing.parse(text, mistakes)
    if isinstance(node, Mapping):
        return node
    if mistakes.count == count:
        mistakes.add(node or WHOLE_FILE, "the file has no parameters", _EXAMPLE)
    return None


def _read_parameters(node: Node, mistakes: Mistakes, parameters: dict[str, str]) -> None:
    if not _require_mapping(node, "parameters", mistakes):
        return
    known_parameters = catalogue.all_parameters()
    for name, (name_node, value_node) in node.entries.items():
        if name == "Env":
            mistakes.add(name_node, "the name of the environment is no parameter", "use --env")
        elif name not in known_parameters:
            suggestion = mistakes.did_you_mean(
                name, list(known_parameters), _templates_hint(known_parameters)
            )
            mistakes.add(name_node, f"no template has a parameter {quote(name)}", suggestion)
        elif (text := _value_text(value_node)) is None:
            mistakes.add(value_node, f"{name} needs a value", "write text, a number or a list")
        else:
            problems = [
                catalogue.find_problem(parameter, text) for parameter in known_parameters[name]
            ]
            # Templates may declare the same name differently: one that accepts the value is enough.
            if all(problems):
                mistakes.add(value_node, f"{name}: {problems[0]}")
            parameters[name] = text


def _templates_hint(parameter_names: Collection[str]) -> str:
    examples = ", ".join(sorted(parameter_names)[:5])
    return f"`batchyard template NAME` shows them; there is {examples}, ..."


def _read_tags(node: Node, mistakes: Mistakes, tags: dict[str, str]) -> None:
    if not _require_mapping(node, "tags", mistakes):
        return
    for name, (name_node, value_node) in node.entries.items():
        text = _value_text(value_node)
        if text is None or isinstance(value_node, Sequence):
            mistakes.add(value_node, f"the tag {quote(name)} needs one value", "write text")
            continue
        problem = catalogue.find_tag_problem(name, text)
        if problem:
            mistakes.add(name_node, f"the tag {quote(name)}: {problem}")
        tags[name] = text


def _require_mapping(node: Node, key: str, mistakes: Mistakes) -> bool:
    is_nothing = isinstance(node, Scalar) and node.kind == NOTHING
    if not isinstance(node, Mapping) and not is_nothing:
        mistakes.add(node, f"{key} must be names with values", "write NAME: VALUE on each line")
    return isinstance(node, Mapping)


def _value_text(node: Node) -> str | None:
    """Return the text of a scalar, or the texts of a list with commas between; else None."""
    if isinstance(node, Scalar):
        return None if node.kind == NOTHING else node.text
    if isinstance(node, Sequence) and all(isinstance(item, Scalar) for item in node.items):
        return ",".join(item.text or "" for item in node.items)
    return None
