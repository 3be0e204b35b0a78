"""Patterns of paths in a workspace: what they match, and where to look for matches. Pure.

`*` and `?` match within a name, `**` any number of folders, `[ab]` one character. A path without
any of these is a file, or everything below a folder. Names that begin with a dot are not special.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import lru_cache

from batchyard.quick_dataclasses import dataclass

#: beginning of the names of the worker's own files in a workspace; no pattern matches them
OWN_PREFIX = ".batchyard-"

_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Glob:
    text: str

    @property
    def is_plain(self) -> bool:
        return not _WILD.search(self.text)

    @property
    def prefix(self) -> str:
        """The beginning of every path that matches."""
        wildcard = _WILD.search(self.text)
        return self.text[: wildcard.start()] if wildcard else self.text

    @property
    def folder(self) -> str:
        """The deepest folder that all matches are in; empty: the workspace itself."""
        return self.prefix.rpartition("/")[0]

    @property
    def stays_in_folder(self) -> bool:
        """Whether all matches are directly in ``folder``."""
        wild_part = self.text[len(self.prefix) :]
        return not self.is_plain and "/" not in wild_part and "**" not in wild_part

    def matches(self, path: str) -> bool:
        if path.rpartition("/")[2].startswith(OWN_PREFIX):
            return False
        if self.is_plain:  # without a regular expression: there can be one pattern for each child
            return path == self.text or path.startswith(f"{self.text}/")
        return _pattern(self.text).fullmatch(path) is not None


class NameIndex:
    """Names of files in order. Finds matches without looking at all names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._sorted = sorted(names)
        self._names = frozenset(self._sorted)

    def find(self, glob: Glob) -> Iterator[str]:
        """Yield the names that the glob matches."""
        if glob.is_plain and glob.text in self._names and glob.matches(glob.text):
            yield glob.text
        prefix = f"{glob.text}/" if glob.is_plain else glob.prefix
        for position in range(bisect_left(self._sorted, prefix), len(self._sorted)):
            name = self._sorted[position]
            if not name.startswith(prefix):
                break
            if glob.matches(name):
                yield name


def globs(texts: Iterable[str]) -> tuple[Glob, ...]:
    """Return patterns without `./`, double slashes and a final slash."""
    return tuple(Glob(_normalize(text)) for text in texts)


def is_safe(path: str) -> bool:
    """Return whether a path from S3 stays within the folder that it is downloaded to."""
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


def _normalize(text: str) -> str:
    parts = [part for part in text.split("/") if part not in ("", ".")]
    return "/".join(parts) or "**"


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    *folders, last = text.split("/")
    pieces = ["(?:[^/]+/)*" if part == "**" else f"{_name_pattern(part)}/" for part in folders]
    pieces.append(".+" if last == "**" else _name_pattern(last))
    return re.compile("".join(pieces), re.DOTALL)


def _name_pattern(part: str) -> str:
    """Return the regular expression of one name in a path."""
    pieces, position = ["(?=[^/])"], 0  # a name is never empty
    while position < len(part):
        character = part[position]
        position += 1
        if character == "*":
            pieces.append("[^/]*")
        elif character == "?":
            pieces.append("[^/]")
        elif character == "[" and (end := _end_of_set(part, position)) > 0:
            pieces.append(_set_pattern(part[position:end]))
            position = end + 1
        else:
            pieces.append(re.escape(character))
    return "".join(pieces)


def _end_of_set(part: str, start: int) -> int:
    """Return the position of the `]` that ends a set of characters; -1 if there is none."""
    is_negated = part[start : start + 1] in ("!", "^")
    return part.find("]", start + is_negated + 1)


def _set_pattern(characters: str) -> str:
    is_negated = characters[0] in "!^"
    members = characters[1:] if is_negated else characters
    escaped = re.sub(r"([\\\[\]^&|~])", r"\\\1", members)
    pattern = f"(?!/)[{'^' if is_negated else ''}{escaped}]"
    try:
        re.compile(pattern)
    except re.error:  # [z-a] is not a range, so its characters are literal
        return re.escape(f"[{characters}]")
    return pattern
