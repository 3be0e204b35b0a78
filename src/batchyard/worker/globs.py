"""Patterns of paths in a workspace: what they match, and where to begin to look. Pure.

`*` and `?` stay within a name, `**` is any number of folders, `[ab]` one of them. A path without any of these is a
file, or everything below a folder. Names that begin with a dot are names like others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

#: begins the name of every file of the worker's own in a workspace; no pattern matches these
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
        """What every path that it matches begins with."""
        found = _WILD.search(self.text)
        return self.text[: found.start()] if found else self.text

    @property
    def folder(self) -> str:
        """The deepest folder that everything it matches is in; empty: the workspace itself."""
        return self.prefix.rpartition("/")[0]

    @property
    def stays_in_folder(self) -> bool:
        """Whether it matches nothing in the folders of its folder."""
        rest = self.text[len(self.prefix) :]
        return not self.is_plain and "/" not in rest and "**" not in rest

    def matches(self, path: str) -> bool:
        if path.rpartition("/")[2].startswith(OWN_PREFIX):
            return False
        return _pattern(self.text).fullmatch(path) is not None


def globs(texts: Iterable[str]) -> tuple[Glob, ...]:
    """Without what says nothing: `./`, doubled slashes; what ends with a slash is a folder."""
    return tuple(Glob(_tidied(text)) for text in texts)


def is_safe(path: str) -> bool:
    """Whether a path from elsewhere stays in the folder it is laid down in, under that name."""
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


def _tidied(text: str) -> str:
    parts = [part for part in text.split("/") if part not in ("", ".")]
    return "/".join(parts) or "**"


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    if not _WILD.search(text):
        return re.compile(re.escape(text) + "(/.*)?", re.DOTALL)
    parts = text.split("/")
    *before, last = parts
    pieces = ["(?:[^/]+/)*" if part == "**" else f"{_name(part)}/" for part in before]
    pieces.append(".+" if last == "**" else _name(last))
    return re.compile("".join(pieces), re.DOTALL)


def _name(part: str) -> str:
    """The pattern of one name."""
    out, at = ["(?=[^/])"], 0  # no name is empty
    while at < len(part):
        sign = part[at]
        at += 1
        if sign == "*":
            out.append("[^/]*")
        elif sign == "?":
            out.append("[^/]")
        elif (
            sign == "[" and (end := part.find("]", at + (part[at : at + 1] in ("!", "^")) + 1)) > 0
        ):
            out.append(_one_of(part[at:end]))
            at = end + 1
        else:
            out.append(re.escape(sign))
    return "".join(out)


def _one_of(inside: str) -> str:
    is_not = inside[0] in "!^"
    signs = re.sub(r"([\\\[\]^&|~])", r"\\\1", inside[1:] if is_not else inside)
    pattern = f"(?!/)[{'^' if is_not else ''}{signs}]"
    try:
        re.compile(pattern)
    except re.error:  # [z-a]: no range, so these signs themselves
        return re.escape(f"[{inside}]")
    return pattern
