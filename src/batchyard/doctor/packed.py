"""What stands packed in a text, in base64 with or without gzip: found, unpacked, and packed again. Pure."""

from __future__ import annotations

import base64
import binascii
import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

#: more than any user data unpacks to in earnest
MAX_UNPACKED = 1_000_000
#: a pack in a pack in a pack
MAX_DEPTH = 3

_GZIP = b"\x1f\x8b"
#: a word, or lines of which each is one
_RUN = re.compile(
    r"(?m)(?<![A-Za-z0-9+/=_.-])[A-Za-z0-9+/]{16,}={0,2}"
    r"(?:(?:(?=[ \t]*\r?$)[ \t]*\r?\n[ \t]*[A-Za-z0-9+/]+={0,2}(?=[ \t]*\r?$))+|(?![A-Za-z0-9+/=_]))"
)
_MIME_BODY = re.compile(
    r"(?im)^content-transfer-encoding:[ \t]*base64[^\n]*\n(?:[ \t]*[^\s][^\n]*\n)*[ \t\r]*\n"
    r"((?:(?!--)[^\n]*\n|(?!--)[^\n]+\Z)*)"
)
#: of cloud-config's write_files; it goes on over lines that are indented, and ends with its padding
_CONTENT = re.compile(
    r"(?m)\bcontent[ \t]*:[ \t]*(!!binary[ \t]+)?(?:[|>][-+0-9]*[ \t]*\r?\n)?[ \t]*[\"']?"
    r"([A-Za-z0-9+/]{4,}(?:[ \t]*\r?\n[ \t]+[A-Za-z0-9+/]+(?==*[ \t]*\r?$))*={0,2})(?=[ \t]*(?:[\"',}\r]|$))"
)
_ENCODING = re.compile(r"\bencoding[ \t]*:[ \t]*[\"']?(?:gz|b64|base64)", re.IGNORECASE)
_ITEM = re.compile(r"(?m)^[ \t]*-[ \t]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f]")


@dataclass(frozen=True, slots=True)
class Pack:
    start: int
    end: int
    #: None where it cannot be read: it holds no text
    text: str | None
    is_gzip: bool = False
    #: it is not even base64
    is_broken: bool = False


def packs(text: str) -> list[Pack]:
    """In order, none over another."""
    found = [*_bodies(text), *_contents(text), *_runs(text)]
    chosen: list[Pack] = []
    for pack in sorted(found, key=lambda p: (p.start, -p.end)):
        if not chosen or pack.start >= chosen[-1].end:
            chosen.append(pack)
    return chosen


def layers(text: str, depth: int = MAX_DEPTH) -> Iterator[tuple[int, str]]:
    """Offset and text of all that is packed in a text, and in that."""
    for pack in packs(text) if depth else ():
        if pack.text is not None:
            yield pack.start, pack.text
            yield from ((pack.start, inner) for _, inner in layers(pack.text, depth - 1))


def packed(text: str, is_gzip: bool, shape: str) -> str:
    """In as many lines as ``shape`` has where there is enough of it, so that what stands below keeps its line."""
    data = text.encode("utf-8", "surrogateescape")
    word = base64.b64encode(gzip.compress(data, mtime=0) if is_gzip else data).decode()
    gaps = re.findall(r"[ \t]*\r?\n[ \t]*", shape.rstrip())
    tail = shape[len(shape.rstrip()) :]
    width = max(16, -(-len(word) // (4 * (len(gaps) + 1))) * 4)
    chunks = [word[i : i + width] for i in range(0, len(word), width)] or [""]
    gaps = gaps[: len(chunks) - 1] + gaps[len(chunks) - 1 :]
    lines = "".join(chunk + gap for chunk, gap in zip(chunks, [*gaps, ""], strict=False))
    return lines + "\n" * max(0, len(gaps) - len(chunks) + 1) + tail


def gunzip(data: bytes) -> bytes | None:
    """Decompress gzip, up to ``MAX_UNPACKED`` bytes. Return None for data that is not gzip, damaged or cut short.

    cloud-init does not use the readable beginning of a gzip that is cut short either.
    """
    stream = zlib.decompressobj(31)
    try:
        text = stream.decompress(data, MAX_UNPACKED)
    except zlib.error:
        return None
    is_cut_short = not stream.eof and len(text) < MAX_UNPACKED
    return None if is_cut_short else text


def _bodies(text: str) -> Iterator[Pack]:
    """The parts of a MIME document; read as leniently as the mail readers do."""
    for match in _MIME_BODY.finditer(text):
        data = _decoded(match[1], is_lenient=True)
        if data != b"":
            yield _pack(*match.span(1), data)


def _contents(text: str) -> Iterator[Pack]:
    for match in _CONTENT.finditer(text):
        before = [item.start() for item in _ITEM.finditer(text, 0, match.start())]
        after = _ITEM.search(text, match.end())
        item = text[before[-1] if before else 0 : after.start() if after else len(text)]
        if match[1] or _ENCODING.search(item):
            yield _pack(*match.span(2), _decoded(match[2], is_lenient=True))


def _runs(text: str) -> Iterator[Pack]:
    for match in _RUN.finditer(text):
        lines = list(re.finditer(r"[A-Za-z0-9+/]+={0,2}", match[0]))
        for count in range(len(lines), 0, -1):
            words = [line[0] for line in lines[:count]]
            if any(len(word) != len(words[0]) for word in words[:-1]) or len(words[-1]) > len(
                words[0]
            ):
                continue
            if any("=" in word for word in words[:-1]):
                continue  # it ends with its padding
            data = _decoded("".join(words))
            pack = _pack(match.start(), match.start() + lines[count - 1].end(), data)
            if pack.text is not None:
                yield pack
                break


def _decoded(text: str, is_lenient: bool = False) -> bytes | None:
    word = "".join(text.split())
    bare = word.rstrip("=")
    try:
        return base64.b64decode(word if is_lenient else bare + "=" * (-len(bare) % 4))
    except (binascii.Error, ValueError):
        return None


def _pack(start: int, end: int, data: bytes | None) -> Pack:
    if data is None:
        return Pack(start, end, None, is_broken=True)
    is_gzip = data[:2] == _GZIP
    inner = gunzip(data) if is_gzip else data
    return Pack(start, end, None if inner is None else _text(inner), is_gzip)


def _text(data: bytes) -> str | None:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        # A script with other letters in it, or with a program behind it.
        return data.decode("utf-8", "surrogateescape") if data[:2] == b"#!" else None
    return text if text and (data[:2] == b"#!" or not _CONTROL.search(text)) else None
