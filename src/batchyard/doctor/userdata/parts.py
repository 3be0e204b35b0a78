"""Split user data into its parts: MIME, scripts, cloud-config, packed or not. Pure.

A part is recognized as cloud-init does it, by content type and first line. Parts keep their lines,
and malformed parts are reported as problems. Any bytes are accepted.
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
from batchyard.yaml_positions import Node

SHELL, BOOTHOOK, CLOUD_CONFIG, OTHER_SCRIPT, OTHER = (
    "shell",
    "boothook",
    "cloud-config",
    "script",
    "other",
)
#: a YAML list of parts, cloud-init's alternative to MIME
ARCHIVE = "archive"
#: multipart documents in multipart documents
MAX_MIME_DEPTH = 3

_BASE64 = re.compile(rb"[A-Za-z0-9+/\s]+={0,2}\s*")
_HEADER = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*:(.*)")
_BOUNDARY = re.compile(r"boundary[ \t]*=[ \t]*(?:\"([^\"]*)\"|([^\s;\"]+))", re.IGNORECASE)
_GZIP = b"\x1f\x8b"
_NO_BLANK_LINE = "there is no blank line between a part's headers and its text"
#: beginnings of the headers that parts of user data have, in lower case
_MIME_HEADERS = ("content-", "mime-", "x-", "merge-type", "launch-index", "number-", "subject")
#: a value that a template fills in later
_UNKNOWN_VALUE = re.compile(r"__\w+__|[$%#]?\{[^{}\n]*\}+")
#: first characters of parts for other systems, in lower case
_OTHER_STARTS = ("<powershell", "<script", "#include", "#upstart-job", "[settings", "<?xml")


@dataclass(frozen=True, slots=True)
class Part:
    kind: str
    text: str
    first_line: int = 1
    content_type: str = ""
    #: the part is a JSON patch of the cloud-config
    is_patch: bool = False

    def line_of(self, line: int) -> int:
        """Return the line of the user data for a line of the part; 0 counts as the first line."""
        return self.first_line + max(line, 1) - 1


@dataclass(slots=True)
class UserData:
    #: in bytes, as EC2 counts it: before base64
    size: int
    text: str
    is_mime: bool = False
    parts: list[Part] = field(default_factory=list)
    #: line, and what is malformed
    problems: list[tuple[int, str]] = field(default_factory=list)

    def add(self, part: Part) -> None:
        """Add a part; an archive is split into its parts."""
        if part.kind != ARCHIVE:
            self.parts.append(part)
            return
        try:
            items = parse(part.text).items
        except NotReadableError as exc:
            line = part.first_line + max(0, exc.line - 1)
            self.problems.append((line, f"the archive is not YAML: {exc.problem}"))
            return
        self.parts += [_archive_part(item, part) for item in items]


def _archive_part(item: Node, archive: Part) -> Part:
    """Return a part of an archive: the item is a text, or a mapping of text and type."""
    content = item.get("content") or item
    type_node = item.get("type")
    content_type = (type_node.text or "" if type_node else "").lower()
    return _make_part(content.text or "", archive.line_of(content.text_line), content_type)


def _make_part(text: str, first_line: int, content_type: str) -> Part:
    is_patch = _is_patch(text, content_type)
    return Part(find_kind(text, content_type), text, first_line, content_type, is_patch)


def parse_user_data(data: bytes) -> UserData:
    size, data = unpack(data)
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
    user_data = UserData(size, text)
    document = text.lstrip()
    blank_count = len(text) - len(document)
    if not document.lower().startswith(("mime-version:", "content-type:")):
        user_data.add(_make_part(text, 1, ""))
        return user_data
    user_data.is_mime = True
    if blank_count:
        problem = "blank lines are before the MIME header, so it is not read as a header"
        user_data.problems.append((1, problem))
    first_line = text.count("\n", 0, blank_count) + 1
    _read_mime(document, first_line, user_data, depth=0)
    return user_data


def unpack(data: bytes) -> tuple[int, bytes]:
    """Undo base64 and gzip. Return the size in bytes that EC2 counts, and the content."""
    stripped = data.strip()
    if len(stripped) >= 16 and _BASE64.fullmatch(stripped):
        try:
            decoded = base64.b64decode(b"".join(stripped.split()), validate=True)
        except (binascii.Error, ValueError):
            decoded = b""
        is_user_data = decoded[:6].lower() in (b"mime-v", b"conten", b"#cloud")
        if is_user_data or decoded[:2] in (b"#!", _GZIP):
            data = decoded
    size = len(data)
    if data[:2] == _GZIP:
        data = gunzip(data) or data
    return size, data


# -- MIME -----------------------------------------------------------------------------------------


def _read_mime(text: str, first_line: int, user_data: UserData, depth: int) -> None:
    lines = text.split("\n")
    headers, at = _read_headers(lines)
    content_type = headers.get("content-type", "")
    if "multipart" not in content_type.lower():
        user_data.add(_decode_part(headers, "\n".join(lines[at:]), first_line + at))
        if depth == 0:
            user_data.problems.append((first_line, "the document is not multipart/mixed"))
        return
    boundary = _BOUNDARY.search(content_type)
    name = (boundary[1] or boundary[2] or "") if boundary else ""
    if not name:
        user_data.problems.append((first_line, "the Content-Type header has no boundary"))
        return
    _read_multipart(lines, at, f"--{name}", first_line, user_data, depth)


def _read_multipart(
    lines: list[str], at: int, boundary: str, first_line: int, user_data: UserData, depth: int
) -> None:
    start: int | None = None
    is_closed = False
    for i in range(at, len(lines)):
        line = lines[i].rstrip()
        if line not in (boundary, f"{boundary}--"):
            continue
        if start is not None:
            _read_part(lines[start:i], first_line + start, user_data, depth)
        start = i + 1
        if line == f"{boundary}--":
            is_closed = True
            break
    if start is None:
        problem = f"no line is the boundary {boundary}: there are no parts"
        user_data.problems.append((first_line, problem))
    elif not is_closed and "".join(lines[start:]).strip():
        # cloud-init reads a last part that no boundary closes.
        _read_part(lines[start:], first_line + start, user_data, depth)


def _read_part(lines: list[str], first_line: int, user_data: UserData, depth: int) -> None:
    headers, at = _read_headers(lines)
    if "content-type" not in headers:
        problem = "a part has no Content-Type header right below its boundary"
        user_data.problems.append((first_line, problem))
    elif (swallowed := _find_swallowed_line(lines[:at])) is not None:
        problem = f"{_NO_BLANK_LINE}: {lines[swallowed][:60]!r} is read as a header"
        user_data.problems.append((first_line + swallowed, problem))
    elif at and lines[at - 1].strip():
        user_data.problems.append((first_line + at - 1, _NO_BLANK_LINE))
    is_multipart = "multipart" in headers.get("content-type", "").lower()
    if is_multipart and depth < MAX_MIME_DEPTH:
        _read_mime("\n".join(lines), first_line, user_data, depth + 1)
        return
    body = "\n".join(lines[at:])
    if _has_wrong_encoding(headers, body):
        problem = "a part says that it is in base64, and its text is not"
        user_data.problems.append((first_line + at, problem))
        return
    user_data.add(_decode_part(headers, body, first_line + at))


def _has_wrong_encoding(headers: dict[str, str], body: str) -> bool:
    """Return whether a part in base64 has other letters; unknown values of templates are none."""
    if "base64" not in headers.get("content-transfer-encoding", "").lower():
        return False
    return re.fullmatch(r"[A-Za-z0-9+/=\s]*", _UNKNOWN_VALUE.sub("", body)) is None


def _find_swallowed_line(lines: list[str]) -> int | None:
    """Return the index of the first line that looks like a header and is a line of the text."""
    for at, line in enumerate(lines):
        match = _HEADER.match(line)
        if match and not match[1].lower().startswith(_MIME_HEADERS):
            return at
    return None


def _read_headers(lines: list[str]) -> tuple[dict[str, str], int]:
    """Return the headers, and the index of the first line below them and their blank line."""
    headers: dict[str, str] = {}
    name = ""
    for at, line in enumerate(lines):
        if not line.strip():
            return headers, at + 1
        match = _HEADER.match(line)
        if line[:1] in " \t" and name:
            headers[name] += line
        elif match and not line.startswith("#"):
            name = match[1].lower()
            headers[name] = match[2]
        else:
            return headers, at
    return headers, len(lines)


def _decode_part(headers: dict[str, str], body: str, first_line: int) -> Part:
    encoding = headers.get("content-transfer-encoding", "").lower()
    if "base64" in encoding:
        body = _decode_base64(body).decode("utf-8", "replace")
    elif "quoted-printable" in encoding:
        body = quopri.decodestring(body.encode("utf-8", "replace")).decode("utf-8", "replace")
    content_type = headers.get("content-type", "").split(";")[0].strip().lower()
    return _make_part(body, first_line, content_type)


def _decode_base64(body: str) -> bytes:
    """Undo base64, and gzip in it."""
    try:
        decoded = base64.b64decode("".join(body.split()), validate=False)
    except (binascii.Error, ValueError):
        return b""
    return (gunzip(decoded) or decoded) if decoded[:2] == _GZIP else decoded


# -- kinds of parts -------------------------------------------------------------------------------


def _is_patch(text: str, content_type: str) -> bool:
    is_marked = text.lstrip().startswith("#cloud-config-jsonp")
    return is_marked or content_type == "text/cloud-config-jsonp"


def find_kind(text: str, content_type: str) -> str:
    """Return the kind of a part, by its content type, or by its first line as cloud-init does."""
    head = text.lstrip()[:200]
    config_kind = _find_config_kind(head, content_type)
    if config_kind:
        return config_kind
    if head.startswith("## template:"):
        return find_kind(text.lstrip().partition("\n")[2], content_type)
    if head.startswith("#!"):
        return OTHER_SCRIPT if other_interpreter(head) else SHELL
    if head.lower().startswith(_OTHER_STARTS):
        return OTHER
    is_shell_type = content_type.startswith("text/x-shellscript")
    return SHELL if content_type in ("", "text/plain") or is_shell_type else OTHER


def _find_config_kind(head: str, content_type: str) -> str:
    """Return the kind of a part that is for cloud-init itself; empty for any other."""
    if content_type == "text/cloud-config-archive" or head.startswith("#cloud-config-archive"):
        return ARCHIVE
    if content_type in ("text/cloud-config", "text/x-cloud-config", "text/cloud-config-jsonp"):
        return CLOUD_CONFIG
    if head.startswith("#cloud-config"):
        return CLOUD_CONFIG
    if content_type == "text/cloud-boothook" or head.startswith("#cloud-boothook"):
        return BOOTHOOK
    return ""
