"""User data -> its parts: MIME, scripts, cloud-config; packed or not. Pure, and refuses no bytes.

The parts are found as cloud-init finds them, by content type and by first line, but with their lines, and with what is
malformed noted instead of passed over.
"""

from __future__ import annotations

import base64
import binascii
import quopri
import re
from dataclasses import dataclass, field

from batchyard.doctor.packed import gunzip
from batchyard.doctor.shell.interpreters import other_interpreter
from batchyard.doctor.yaml_tree import NotReadableError, parse

SHELL, BOOTHOOK, CLOUD_CONFIG, OTHER_SCRIPT, OTHER = (
    "shell",
    "boothook",
    "cloud-config",
    "script",
    "other",
)
#: cloud-init's other way to put several parts into one: a list in YAML
ARCHIVE = "archive"

_BASE64 = re.compile(rb"[A-Za-z0-9+/\s]+={0,2}\s*")
_HEADER = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*:(.*)")
_BOUNDARY = re.compile(r"boundary[ \t]*=[ \t]*(?:\"([^\"]*)\"|([^\s;\"]+))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Part:
    kind: str
    text: str
    first_line: int = 1
    content_type: str = ""
    #: a JSON patch of the cloud-config
    is_patch: bool = False


@dataclass(slots=True)
class UserData:
    #: as EC2 counts it: before base64
    size: int
    text: str
    is_mime: bool = False
    parts: list[Part] = field(default_factory=list)
    #: line, and what is malformed about the MIME document
    problems: list[tuple[int, str]] = field(default_factory=list)


def read(data: bytes) -> UserData:
    size, data = unpacked(data)
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
    found = UserData(size, text)
    blanks = len(text) - len(text.lstrip())
    start = text[blanks:].lower()
    if start.startswith(("mime-version:", "content-type:")):
        found.is_mime = True
        if blanks:
            found.problems.append(
                (1, "blank lines stand before the MIME header, which then is no header")
            )
        first = text.count("\n", 0, blanks) + 1
        _read_mime(text[blanks:], first, found, depth=0)
    else:
        _add(Part(_kind(text, ""), text, is_patch=_is_patch(text, "")), found)
    return found


def _add(part: Part, found: UserData) -> None:
    if part.kind != ARCHIVE:
        found.parts.append(part)
        return
    try:
        items = parse(part.text).items
    except NotReadableError as exc:
        found.problems.append(
            (part.first_line + max(0, exc.line - 1), f"the archive is not YAML: {exc.problem}")
        )
        return
    for item in items:
        # Either a text alone, or a text with its type.
        content = item.get("content") or item
        kind = item.get("type")
        text, first_line = content.text or "", part.first_line + max(content.text_line, 1) - 1
        content_type = (kind.text or "" if kind else "").lower()
        is_patch = _is_patch(text, content_type)
        found.parts.append(
            Part(_kind(text, content_type), text, first_line, content_type, is_patch)
        )


def unpacked(data: bytes) -> tuple[int, bytes]:
    """Past base64 and gzip, with the size that counts."""
    stripped = data.strip()
    if len(stripped) >= 16 and _BASE64.fullmatch(stripped):
        try:
            inner = base64.b64decode(b"".join(stripped.split()), validate=True)
        except (binascii.Error, ValueError):
            inner = b""
        if inner[:2] in (b"#!", b"\x1f\x8b") or inner[:6].lower() in (
            b"mime-v",
            b"conten",
            b"#cloud",
        ):
            data = inner
    size = len(data)
    if data[:2] == b"\x1f\x8b":
        data = gunzip(data) or data
    return size, data


def _read_mime(text: str, first_line: int, found: UserData, depth: int) -> None:
    lines = text.split("\n")
    headers, at = _headers(lines, 0)
    kind = headers.get("content-type", "")
    if "multipart" not in kind.lower():
        body = "\n".join(lines[at:])
        _add(_part(headers, body, first_line + at), found)
        if depth == 0:
            found.problems.append((first_line, "the document is not multipart/mixed"))
        return
    boundary = _BOUNDARY.search(kind)
    name = (boundary[1] or boundary[2] or "") if boundary else ""
    if not name:
        found.problems.append((first_line, "the Content-Type header has no boundary"))
        return
    _split(lines, at, "--" + name, first_line, found, depth)


def _split(
    lines: list[str], at: int, mark: str, first_line: int, found: UserData, depth: int
) -> None:
    start: int | None = None
    is_closed = False
    for i in range(at, len(lines)):
        line = lines[i].rstrip()
        if line not in (mark, mark + "--"):
            continue
        if start is not None:
            _one_part(lines[start:i], first_line + start, found, depth)
        start = i + 1
        if line == mark + "--":
            is_closed = True
            break
    if start is None:
        found.problems.append(
            (first_line, f"its boundary {mark} stands nowhere in it: there are no parts")
        )
    elif not is_closed and "".join(lines[start:]).strip():
        # cloud-init reads a last part that nothing closes.
        _one_part(lines[start:], first_line + start, found, depth)


def _one_part(lines: list[str], first_line: int, found: UserData, depth: int) -> None:
    headers, at = _headers(lines, 0)
    if "content-type" not in headers:
        found.problems.append(
            (first_line, "a part has no Content-Type header right below its boundary")
        )
    elif at <= len(lines) and at and lines[at - 1].strip():
        found.problems.append(
            (first_line + at - 1, "no blank line stands between a part's headers and its text")
        )
    if "multipart" in headers.get("content-type", "").lower() and depth < 3:
        _read_mime("\n".join(lines), first_line, found, depth + 1)
        return
    _add(_part(headers, "\n".join(lines[at:]), first_line + at), found)


def _headers(lines: list[str], at: int) -> tuple[dict[str, str], int]:
    """The headers, and the index of the first line below them and their blank line."""
    headers: dict[str, str] = {}
    last = ""
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            return headers, at + 1
        match = _HEADER.match(line)
        if line[:1] in " \t" and last:
            headers[last] += line
        elif match and not line.startswith("#"):
            last = match[1].lower()
            headers[last] = match[2]
        else:
            return headers, at
        at += 1
    return headers, at


def _part(headers: dict[str, str], body: str, first_line: int) -> Part:
    if "base64" in headers.get("content-transfer-encoding", "").lower():
        try:
            decoded = base64.b64decode("".join(body.split()), validate=False)
        except (binascii.Error, ValueError):
            decoded = b""
        if decoded[:2] == b"\x1f\x8b":
            decoded = gunzip(decoded) or decoded
        body = decoded.decode("utf-8", "replace")
    elif "quoted-printable" in headers.get("content-transfer-encoding", "").lower():
        body = quopri.decodestring(body.encode("utf-8", "replace")).decode("utf-8", "replace")
    kind = headers.get("content-type", "").split(";")[0].strip().lower()
    return Part(_kind(body, kind), body, first_line, kind, _is_patch(body, kind))


def _is_patch(text: str, content_type: str) -> bool:
    return content_type == "text/cloud-config-jsonp" or text.lstrip().startswith(
        "#cloud-config-jsonp"
    )


def _kind(text: str, content_type: str) -> str:
    """By the first line, as cloud-init does for text/plain; by content type where that says more."""
    head = text.lstrip()[:200]
    if content_type == "text/cloud-config-archive" or head.startswith("#cloud-config-archive"):
        return ARCHIVE
    if _is_patch(head, content_type):
        return CLOUD_CONFIG
    if content_type in ("text/cloud-config", "text/x-cloud-config") or head.startswith(
        "#cloud-config"
    ):
        return CLOUD_CONFIG
    if content_type == "text/cloud-boothook" or head.startswith("#cloud-boothook"):
        return BOOTHOOK
    if head.startswith("## template:"):
        return _kind(text.lstrip().partition("\n")[2], content_type)
    if head.startswith("#!"):
        return OTHER_SCRIPT if other_interpreter(head) else SHELL
    if head.lower().startswith(
        ("<powershell", "<script", "#include", "#upstart-job", "[settings", "<?xml")
    ):
        return OTHER
    if content_type in ("", "text/plain") or content_type.startswith("text/x-shellscript"):
        return SHELL
    return OTHER
