"""Read a service file as a Service, or raise all its mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batchyard import yaml_positions
from batchyard.pipeline import MAX_NAME_LENGTH
from batchyard.pipeline_file import key_limits, yaml_parsing
from batchyard.pipeline_file.mistakes import WHOLE_FILE, Mistakes
from batchyard.pipeline_file.text_files import read_text, unreadable_problem
from batchyard.pipeline_file.value_types import check_mapping, is_missing
from batchyard.services.service import Service
from batchyard.services.service_keys import SERVICE_KEYS
from batchyard.units import quote

_MAX_BYTES = 2**20
_EXAMPLE = "write name: and image:, each on a line"


def load(path: Path) -> Service:
    """Return the service of a file. Raises PipelineFileError with all mistakes."""
    mistakes = Mistakes(str(path))
    root = _read_root(path, mistakes)
    values = None
    if root is not None and "steps" in root.entries:
        suggestion = "start it with `batchyard run`"
        mistakes.add(root.entries["steps"][0], "this is a pipeline file, no service", suggestion)
    elif root is not None:
        values = check_mapping(SERVICE_KEYS, root, "the file", mistakes)
    if root is not None and values is not None:
        _check_required_keys(root, path, mistakes)
        _check_pairs(root, values, mistakes)
    mistakes.finish()
    assert root is not None and values is not None
    places = {key: f"{path}:{node.line}:{node.column}" for key, (_, node) in root.entries.items()}
    return Service(**values, places=places, path=path)


def _read_root(path: Path, mistakes: Mistakes) -> yaml_positions.Mapping | None:
    """Return the mapping that the file consists of; None after adding a mistake."""
    try:
        text = read_text(path, mistakes, _MAX_BYTES)
    except OSError as exc:
        mistakes.add(WHOLE_FILE, *unreadable_problem(path, exc, mistakes))
        return None
    count = mistakes.count
    node = None if text is None else yaml_parsing.parse(text, mistakes)
    if isinstance(node, yaml_positions.Mapping):
        return node
    if mistakes.count == count:
        mistakes.add(node or WHOLE_FILE, "the file is no service", _EXAMPLE)
    return None


def _check_required_keys(root: yaml_positions.Mapping, path: Path, mistakes: Mistakes) -> None:
    if is_missing(("name",), SERVICE_KEYS, root, mistakes):
        name = key_limits.suggest_name(path.stem, MAX_NAME_LENGTH, "service")
        mistakes.add(root, "the file has no name", f"write name: {name}")
    if is_missing(("image",), SERVICE_KEYS, root, mistakes):
        mistakes.add(root, "the file has no image", "write image: and a container image")


def _check_pairs(
    root: yaml_positions.Mapping, values: Mapping[str, Any], mistakes: Mistakes
) -> None:
    """Add mistakes about values that do not go together."""
    secrets = root.get("secrets")
    both = values.get("env", {}).keys() & values.get("secrets", {}).keys()
    if isinstance(secrets, yaml_positions.Mapping):
        for name in sorted(both):
            problem = f"{quote(name)} is both in env and in secrets"
            mistakes.add(secrets.entries[name][0], problem, "keep one of them")
    ports = values.get("ports", ())
    if len(set(ports)) < len(ports):
        mistakes.add(root.entries["ports"][1], "a port is listed twice", "list each port once")
    paths = [volume.path for volume in values.get("volumes", ())]
    if len(set(paths)) < len(paths):
        problem = "two volumes have the same path"
        mistakes.add(root.entries["volumes"][1], problem, "give each its own path")
