"""Read cloud-config: its YAML, the files that it writes and the packages that it installs. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from batchyard.doctor.packed import MAX_UNPACKED, gunzip
from batchyard.doctor.shell.trace import FileWrite
from batchyard.doctor.userdata.parts import Part
from batchyard.doctor.yaml_tree import NotReadableError, make_mapping, parse
from batchyard.yaml_positions import Mapping, Node, Sequence

#: control lines and values of Jinja and Terraform templates
_DIRECTIVE = re.compile(r"(?m)^[ \t]*(?:\{%.*%\}|%\{.*\}|\{#.*#\})[ \t]*$|\{%[^%\n]*%\}")
_TEMPLATE_VALUE = re.compile(r"\{\{[^{}\n]*\}\}|\$\{[^{}\n]*\}")
_TRUE = ("true", "yes", "on", "1")


def read(part: Part, problems: list[tuple[int, str]]) -> Node:
    """Return the configuration; empty if it is not YAML, which is added to ``problems``."""
    try:
        tree = parse(part.text)
        return _apply_patch(tree) if part.is_patch else tree
    except NotReadableError as exc:
        unreadable = exc
    # A template is often YAML only when cloud-init or Terraform has filled it in.
    try:
        return parse(_TEMPLATE_VALUE.sub("__value__", _DIRECTIVE.sub("", part.text)))
    except NotReadableError:
        line = part.first_line + max(0, unreadable.line - 1)
        problems.append((line, f"the cloud-config is not YAML: {unreadable.problem}"))
        return Mapping(0, 0)


def _apply_patch(patch: Node) -> Node:
    """Return the keys that a JSON patch adds to the cloud-config."""
    config: dict[str, Node] = {}
    for change in patch.items:
        path, value, operation = change.get("path"), change.get("value"), change.get("op")
        if path is None or value is None or operation is None:
            continue
        if operation.text not in ("add", "replace"):
            continue
        key, _, place = (path.text or "").lstrip("/").partition("/")
        if not place:
            config[key] = value
        elif re.fullmatch(r"-|\d+", place):
            old_value = config.get(key)
            items = [*(old_value.items if old_value else ()), value]
            config[key] = Sequence(value.line, 0, items)
    return make_mapping(config)


def file_writes(part: Part, config: Node) -> Iterator[FileWrite]:
    """Yield the files of `write_files`, unpacked to at most ``MAX_UNPACKED`` bytes together."""
    entries = config.get("write_files")
    budget = MAX_UNPACKED
    for entry in entries.items if entries else ():
        path, content, append = entry.get("path"), entry.get("content"), entry.get("append")
        if path is None or path.text is None:
            continue
        text = _decode(entry, content, budget)
        budget -= len(text)
        is_append = append is not None and (append.text or "").lower() in _TRUE
        line = part.line_of((content or path).text_line)
        yield FileWrite(path.text, text, is_append, line)


def _decode(entry: Node, content: Node | None, max_bytes: int) -> str:
    """Undo base64 and gzip as cloud-init does."""
    if content is None:
        return ""
    encoding = _text_of(entry.get("encoding")).lower()
    data = _text_of(content).encode("utf-8", "replace")
    if content.tag.endswith(":binary"):
        data = _from_base64(data)
    if "b64" in encoding or "base64" in encoding:
        data = _from_base64(data)
    if encoding.startswith("gz"):
        data = (gunzip(data) or b"")[:max_bytes] if max_bytes > 0 else b""
    return data.decode("utf-8", "replace")


def _text_of(node: Node | None) -> str:
    return (node.text or "") if node is not None else ""


def _from_base64(data: bytes) -> bytes:
    try:
        return base64.b64decode(b"".join(data.split()))
    except (binascii.Error, ValueError):
        return b""


def packages(part: Part, config: Node) -> Iterator[tuple[str, int]]:
    """Yield the packages that are installed, each with its line."""
    names = config.get("packages")
    for package in names.items if names else ():
        # A package is a name, or a list of name and version.
        name = package.text or (package.items[0].text if package.items else None)
        if name:
            yield name, part.line_of(package.line)
