"""Find, unpack and repack the packed parts of a text: base64, with or without gzip. Pure."""

from __future__ import annotations

import base64
import binascii
import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

#: bytes to which a gzip is unpacked at most; real user data is smaller
MAX_UNPACKED = 1_000_000
#: packed texts in packed texts
MAX_DEPTH = 3

_GZIP = b"\x1f\x8b"
#: a word of base64, or lines of one word each
_RUN = re.compile(
    r"(?m)(?<![A-Za-z0-9+/=_.-])[A-Za-z0-9+/]{16,}={0,2}"
    r"(?:(?:(?=[ \t]*\r?$)[ \t]*\r?\n[ \t]*[A-Za-z0-9+/]+={0,2}(?=[ \t]*\r?$))+"
    r"|(?![A-Za-z0-9+/=_]))"
)
_MIME_BODY = re.compile(
    r"(?im)^content-transfer-encoding:[ \t]*base64[^\n]*\n(?:[ \t]*[^\s][^\n]*\n)*[ \t\r]*\n"
    r"((?:(?!--)[^\n]*\n|(?!--)[^\n]+\Z)*)"
)
#: a file of cloud-config's write_files: it continues over indented lines up to its padding
_CONTENT = re.compile(
    r"(?m)\bcontent[ \t]*:[ \t]*(!!binary[ \t]+)?(?:[|>][-+0-9]*[ \t]*\r?\n)?[ \t]*[\"']?"
    r"([A-Za-z0-9+/]{4,}(?:[ \t]*\r?\n[ \t]+[A-Za-z0-9+/]+(?==*[ \t]*\r?$))*={0,2})"
    r"(?=[ \t]*(?:[\"',}\r]|$))"
)
_ENCODING = re.compile(r"\bencoding[ \t]*:[ \t]*[\"']?(?:gz|b64|base64)", re.IGNORECASE)
_ITEM = re.compile(r"(?m)^[ \t]*-[ \t]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f]")


@dataclass(frozen=True, slots=True)
class Pack:
    """A packed part of a text."""

    start: int
    end: int
    #: the unpacked text; None if the content is not text
    text: str | None
    is_gzip: bool = False
    #: the part is not valid base64
    is_broken: bool = False


def find_packs(text: str) -> list[Pack]:
    """Return the packed parts of a text, in order; they do not overlap."""
    candidates = [*_find_mime_bodies(text), *_find_file_contents(text), *_find_base64(text)]
    packs: list[Pack] = []
    for pack in sorted(candidates, key=lambda p: (p.start, -p.end)):
        if not packs or pack.start >= packs[-1].end:
            packs.append(pack)
    return packs


def unpack_layers(text: str, depth: int = MAX_DEPTH) -> Iterator[tuple[int, str]]:
    """Yield offset and text of each packed part, and of the packed parts in those."""
    for pack in find_packs(text) if depth else ():
        if pack.text is not None:
            yield pack.start, pack.text
            for _, inner_text in unpack_layers(pack.text, depth - 1):
                yield pack.start, inner_text


def pack_like(original: str, text: str, is_gzip: bool) -> str:
    """Return the text in base64, with the line breaks of the original.

    It has as many lines as the original, so that the text below keeps its line numbers.
    """
    data = text.encode("utf-8", "surrogateescape")
    word = base64.b64encode(gzip.compress(data, mtime=0) if is_gzip else data).decode()
    gaps = re.findall(r"[ \t]*\r?\n[ \t]*", original.rstrip())
    tail = original[len(original.rstrip()) :]
    width = max(16, -(-len(word) // (4 * (len(gaps) + 1))) * 4)
    chunks = [word[i : i + width] for i in range(0, len(word), width)] or [""]
    gaps = gaps[: len(chunks) - 1] + gaps[len(chunks) - 1 :]
    lines = "".join(chunk + gap for chunk, gap in zip(chunks, [*gaps, ""], strict=False))
    return lines + "\n" * max(0, len(gaps) - len(chunks) + 1) + tail


def gunzip(data: bytes) -> bytes | None:
    """Decompress gzip, up to ``MAX_UNPACKED`` bytes.

    Return None for data that is not gzip, is damaged or cut short. cloud-init does not use the
    readable beginning of a gzip that is cut short either.
    """
    stream = zlib.decompressobj(31)
    try:
        text = stream.decompress(data, MAX_UNPACKED)
    except zlib.error:
        return None
    is_cut_short = not stream.eof and len(text) < MAX_UNPACKED
    return None if is_cut_short else text


def _find_mime_bodies(text: str) -> Iterator[Pack]:
    """Yield the base64 parts of a MIME document, decoded leniently as mail programs do."""
    for match in _MIME_BODY.finditer(text):
        data = _decode(match[1], is_lenient=True)
        if data != b"":
            yield _make_pack(*match.span(1), data)


def _find_file_contents(text: str) -> Iterator[Pack]:
    for match in _CONTENT.finditer(text):
        item_starts = [item.start() for item in _ITEM.finditer(text, 0, match.start())]
        next_item = _ITEM.search(text, match.end())
        end = next_item.start() if next_item else len(text)
        item = text[item_starts[-1] if item_starts else 0 : end]
        if match[1] or _ENCODING.search(item):
            yield _make_pack(*match.span(2), _decode(match[2], is_lenient=True))


def _find_base64(text: str) -> Iterator[Pack]:
    """Yield words, and lines of words, that are base64 of a text."""
    for match in _RUN.finditer(text):
        lines = list(re.finditer(r"[A-Za-z0-9+/]+={0,2}", match[0]))
        for count in range(len(lines), 0, -1):
            words = [line[0] for line in lines[:count]]
            if not _are_lines_of_one(words):
                continue
            end = match.start() + lines[count - 1].end()
            pack = _make_pack(match.start(), end, _decode("".join(words)))
            if pack.text is not None:
                yield pack
                break


def _are_lines_of_one(words: list[str]) -> bool:
    """Return whether lines can be one base64 text: equally long, and padded only at the end."""
    *first_words, last = words
    width = len(words[0])
    has_width = all(len(word) == width for word in first_words) and len(last) <= width
    return has_width and not any("=" in word for word in first_words)


def _decode(text: str, is_lenient: bool = False) -> bytes | None:
    word = "".join(text.split())
    bare = word.rstrip("=")
    try:
        return base64.b64decode(word if is_lenient else bare + "=" * (-len(bare) % 4))
    except (binascii.Error, ValueError):
        return None


def _make_pack(start: int, end: int, data: bytes | None) -> Pack:
    if data is None:
        return Pack(start, end, None, is_broken=True)
    is_gzip = data[:2] == _GZIP
    inner = gunzip(data) if is_gzip else data
    return Pack(start, end, None if inner is None else _decode_text(inner), is_gzip)


def _decode_text(data: bytes) -> str | None:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        # A script with other letters in it, or with a program behind it.
        return data.decode("utf-8", "surrogateescape") if data[:2] == b"#!" else None
    return text if text and (data[:2] == b"#!" or not _CONTROL.search(text)) else None
