"""The shell's own commands that put text into variables, as far as they need no shell. Pure."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: options of `read` and `mapfile` that take a value of their own
_READ_VALUES = "dinNptu"
_MAPFILE_VALUES = "dnOsuCc"
MAX_LINES = 200


def read(words: tuple[str, ...], text: str, separators: str | None) -> dict[str, tuple[str, ...]]:
    """Name -> what it may be: a field of each line, the last name what is left of it."""
    options, names = _split(words[1:], _READ_VALUES)
    if "d" in options and options["d"] in ("", "$()"):
        return {names[0]: (text.rstrip("\n"),)} if names else {}
    lines = [line for line in text.split("\n") if line.strip()][:MAX_LINES]
    if "a" in options:
        return {
            options["a"]: tuple(field for line in lines for field in _fields(line, separators, 0))
        }
    found = {}
    for at, name in enumerate(names):
        fields = [_fields(line, separators, len(names)) for line in lines]
        found[name] = tuple(line[at] for line in fields if at < len(line))
    return {name: values for name, values in found.items() if values}


def mapfile(words: tuple[str, ...], text: str) -> dict[str, tuple[str, ...]]:
    _, names = _split(words[1:], _MAPFILE_VALUES)
    return {names[0] if names else "MAPFILE": tuple(text.rstrip("\n").split("\n")[:MAX_LINES])}


def _fields(line: str, separators: str | None, most: int) -> list[str]:
    limit = most - 1 if most else -1
    if separators is None or not separators.strip():
        return line.split(None, limit) if separators != "" else [line]
    return [
        part.strip()
        for part in re.split(f"[{re.escape(separators)}]", line, maxsplit=max(limit, 0))
    ]


def _split(words: tuple[str, ...], takes_value: str) -> tuple[dict[str, str], list[str]]:
    options: dict[str, str] = {}
    at = 0
    while at < len(words) and words[at].startswith("-") and len(words[at]) > 1:
        for place, letter in enumerate(words[at][1:], 2):
            options[letter] = ""
            if letter in takes_value or letter == "a":
                is_next = place == len(words[at])
                options[letter] = (
                    (words[at + 1] if at + 1 < len(words) else "") if is_next else words[at][place:]
                )
                at += is_next
                break
        at += 1
    return options, [word for word in words[at:] if _NAME.fullmatch(word)]
