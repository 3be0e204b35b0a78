"""Keys about the container of a step: what is mounted, limits of its processes, its user."""

from __future__ import annotations

import re

from batchyard.pipeline import Mount
from batchyard.pipeline_file.mistakes import Mistakes
from batchyard.pipeline_file.value_types import (
    BOOLEAN,
    Key,
    ValueType,
    check_mapping,
    check_text,
    list_of,
    mapping_of,
    mapping_schema,
    matching_text,
)
from batchyard.yaml_positions import Mapping, Node

#: The keys that say where a mount comes from. A mount has exactly one of them.
_SOURCES = ("efs", "host", "instance_store")
_EXAMPLE = "{path: /data, efs: fs-0123abcd}"
_ULIMIT = re.compile(r"(-1|[0-9]{1,18})(?::(-1|[0-9]{1,18}))?")
_ULIMIT_TEXT = 'a number, -1 for no limit, or "SOFT:HARD"'
_ULIMIT_NAMES = (
    *("core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc"),
    *("rss", "rtprio", "rttime", "sigpending", "stack"),
)

_FOLDER = matching_text("/.*", "an absolute path, like /data")

MOUNT_KEYS = {
    "path": Key(_FOLDER, "Folder in the container.", is_required=True, examples=("/data",)),
    "efs": Key(
        matching_text("fs-[0-9a-f]{8,40}", "the id of a file system, like fs-0123abcd"),
        "Id of an EFS file system.",
        examples=("fs-0123456789abcdef0",),
    ),
    "folder": Key(_FOLDER, "Folder of the EFS file system.", default="/", examples=("/projects",)),
    "access_point": Key(
        matching_text("fsap-[0-9a-f]{8,40}", "the id of an access point, like fsap-0123abcd"),
        "Id of an EFS access point. It decides the folder.",
        examples=("fsap-0123456789abcdef0",),
    ),
    "host": Key(_FOLDER, "Folder of the host.", examples=("/mnt/shared",)),
    "instance_store": Key(
        BOOLEAN, "The NVMe disks of the host, which are empty at its start.", default=False
    ),
    "read_only": Key(BOOLEAN, "Commands cannot write there.", default=False),
}


def _check_mount(node: Node, label: str, mistakes: Mistakes) -> Mount | None:
    values = check_mapping(MOUNT_KEYS, node, label, mistakes, _EXAMPLE)
    if values is None or not isinstance(node, Mapping):
        return None
    if "path" not in node.entries:
        mistakes.add(node, f"{label} has no path", f"write {_EXAMPLE}")
        return None
    sources = [name for name in _SOURCES if name in node.entries and values.get(name) is not False]
    if len(sources) != 1:
        problem = f"has {' and '.join(sources)}" if sources else "has no source"
        mistakes.add(node, f"{label} {problem}", f"write one of {', '.join(_SOURCES)}")
        return None
    _check_efs_keys(node, label, mistakes)
    return Mount(**values) if "path" in values else None


def _check_efs_keys(node: Mapping, label: str, mistakes: Mistakes) -> None:
    """Add a mistake for keys of EFS without a file system, and for two folders of one."""
    for name in ("folder", "access_point"):
        if name in node.entries and "efs" not in node.entries:
            mistakes.add(node.entries[name][0], f"{label} has {name} without efs", "add efs")
    if "folder" in node.entries and "access_point" in node.entries:
        mistakes.add(
            node.entries["folder"][0],
            f"{label} has folder and access_point",
            "leave folder out: the access point decides the folder",
        )


def _check_ulimit(node: Node, label: str, mistakes: Mistakes) -> str | None:
    """Return `SOFT:HARD`."""
    value = check_text(node, label, mistakes, _ULIMIT_TEXT)
    if value is None:
        return None
    match = _ULIMIT.fullmatch(value)
    if match is None:
        mistakes.add(node, f"{label} is {value!r}", f"write {_ULIMIT_TEXT}")
        return None
    soft, hard = match[1], match[2] or match[1]
    is_above = hard != "-1" and (soft == "-1" or int(soft) > int(hard))
    if is_above:
        mistakes.add(node, f"{label}: {soft} is above the hard limit {hard}", "lower the first")
        return None
    return f"{soft}:{hard}"


def _ulimit_name_problem(name: str) -> str:
    return "" if name in _ULIMIT_NAMES else f"write one of {', '.join(_ULIMIT_NAMES)}"


MOUNTS = list_of(
    ValueType(_check_mount, mapping_schema(MOUNT_KEYS), "mount"),
    f"a list of mounts, like [{_EXAMPLE}]",
    "list of mounts",
    suggest_brackets=False,
)
ULIMITS = mapping_of(
    _ulimit_name_problem,
    f"^({'|'.join(_ULIMIT_NAMES)})$",
    ValueType(
        _check_ulimit,
        {"type": ["integer", "string"], "minimum": -1, "pattern": f"^{_ULIMIT.pattern}$"},
        "limit",
    ),
    "a mapping, like {nofile: 65536}",
)
USER = matching_text(
    r"[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?",
    'a user, or "USER:GROUP", by name or number',
    max_length=255,
)
