"""The shell's own commands `read` and `mapfile`, which put text into variables. Pure."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: options of `read` and `mapfile` that take a value
_READ_VALUE_OPTIONS = "dinNptua"
_MAPFILE_VALUE_OPTIONS = "dnOsuCca"
MAX_LINES = 200


def read(words: tuple[str, ...], text: str, separators: str | None) -> dict[str, tuple[str, ...]]:
    """Return the values that each variable of `read` may get: one field of each line.

    The last variable gets the remainder of a line.
    """
    options, names = _parse_options(words[1:], _READ_VALUE_OPTIONS)
    if "d" in options and options["d"] in ("", "$()"):
        return {names[0]: (text.rstrip("\n"),)} if names else {}
    lines = [line for line in text.split("\n") if line.strip()][:MAX_LINES]
    if "a" in options:
        fields = [field for line in lines for field in _split_fields(line, separators, 0)]
        return {options["a"]: tuple(fields)}
    rows = [_split_fields(line, separators, len(names)) for line in lines]
    return _columns(names, rows)


def _columns(names: list[str], rows: list[list[str]]) -> dict[str, tuple[str, ...]]:
    """Return the column of each name, without empty columns."""
    columns = {
        name: tuple(row[column] for row in rows if column < len(row))
        for column, name in enumerate(names)
    }
    return {name: values for name, values in columns.items() if values}


def mapfile(words: tuple[str, ...], text: str) -> dict[str, tuple[str, ...]]:
    """Return the array that `mapfile` fills, by its name."""
    _, names = _parse_options(words[1:], _MAPFILE_VALUE_OPTIONS)
    return {names[0] if names else "MAPFILE": tuple(text.rstrip("\n").split("\n")[:MAX_LINES])}


def _split_fields(line: str, separators: str | None, max_fields: int) -> list[str]:
    """``separators``: the variable IFS, if it is set; ``max_fields`` 0: no limit."""
    max_splits = max_fields - 1 if max_fields else -1
    if separators == "":
        return [line]
    if separators is None or not separators.strip():
        return line.split(None, max_splits)
    pattern = f"[{re.escape(separators)}]"
    return [field.strip() for field in re.split(pattern, line, maxsplit=max(max_splits, 0))]


def _parse_options(words: tuple[str, ...], value_options: str) -> tuple[dict[str, str], list[str]]:
    """Return the options with their values, and the names of variables that follow."""
    options: dict[str, str] = {}
    at = 0
    while at < len(words) and words[at].startswith("-") and len(words[at]) > 1:
        for place, letter in enumerate(words[at][1:], 2):
            options[letter] = ""
            if letter in value_options:
                options[letter] = words[at][place:]
                if not options[letter]:
                    at += 1
                    options[letter] = "".join(words[at : at + 1])
                break
        at += 1
    return options, [word for word in words[at:] if _NAME.fullmatch(word)]
