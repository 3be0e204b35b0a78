"""Checks of single values in a file: node in, value out. Knows YAML's kinds, not which keys a pipeline has.

A check is called with the node, the name to call it by, and the notes. It returns the value, or None after it
has noted what is wrong; no right value is None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from batchyard.pipeline_file import yaml_nodes
from batchyard.pipeline_file.mistakes import Notes
from batchyard.pipeline_file.yaml_nodes import (
    NOTHING,
    NUMBER,
    TEXT,
    WHOLE,
    YES_NO,
    Node,
    Scalar,
    Sequence,
)
from batchyard.units import AmountError, quoted

Check = Callable[[Node, str, Notes], Any]

_TRUE_WORDS = ("yes", "true", "on")
_LONGEST_WHOLE = 15  # digits: beyond any limit here, and int() of thousands of digits raises


@dataclass(frozen=True, slots=True)
class Key:
    """What may stand under one key of a mapping."""

    check: Check
    #: the field of the model that it fills, where that has another name
    field: str = ""
    #: may also stand in the file's ``defaults``
    in_defaults: bool = False


def whole(least: int, most: int) -> Check:
    limits = whole_words(least, most)

    def check(node: Node, called: str, notes: Notes) -> int | None:
        text = node.text.replace("_", "") if isinstance(node, Scalar) and node.kind == WHOLE else ""
        if text and len(text) <= _LONGEST_WHOLE and least <= int(text) <= most:
            return int(text)
        # "4" and 1,000 are as good as right: then the very number to write is told.
        meant = node.text.replace(",", "") if isinstance(node, Scalar) and node.kind == TEXT else ""
        if re.fullmatch("[0-9]{1,9}", meant) and least <= int(meant) <= most:
            _refuse(node, called, f"{int(meant)}, without quotes or commas", notes)
        else:
            _refuse(node, called, limits, notes)
        return None

    return check


def whole_words(least: int, most: int) -> str:
    return f"a whole number from {least:,} to {most:,}"


def yes_no(node: Node, called: str, notes: Notes) -> bool | None:
    if isinstance(node, Scalar) and node.kind == YES_NO:
        return node.text.lower() in _TRUE_WORDS
    _refuse(node, called, "true or false", notes)
    return None


def text(expected: str) -> Check:
    """Any scalar, as it is written: true is the text true, and 0.10 keeps its zero."""

    def check(node: Node, called: str, notes: Notes) -> str | None:
        if not isinstance(node, Scalar) or node.kind == NOTHING:
            _refuse(node, called, expected, notes)
            return None
        if not node.text.isprintable() and ("\0" in node.text or not is_unicode(node.text)):
            notes.wrong(node, f"{called} holds a NUL or half a character", "take it away")
            return None
        return node.text

    return check


def matching(pattern: str, expected: str, fix: Callable[[str], str] | None = None) -> Check:
    """Text of which ``pattern`` matches the whole; ``fix`` may know what the user meant."""
    compiled = re.compile(pattern)
    is_text = text(expected)

    def check(node: Node, called: str, notes: Notes) -> str | None:
        value: str | None = is_text(node, called, notes)
        if value is None or compiled.fullmatch(value):
            return value
        suggestion = fix(value) if fix else ""
        _refuse(node, called, expected + (f", like {suggestion}" if suggestion else ""), notes)
        return None

    return check


def amount(convert: Callable[[str], int]) -> Check:
    """A number with a unit, by a function of units.py."""

    def check(node: Node, called: str, notes: Notes) -> int | None:
        try:
            return convert(node.text if isinstance(node, Scalar) and node.kind != NOTHING else "")
        except AmountError as exc:
            if isinstance(node, Scalar) and node.kind != NOTHING:
                notes.wrong(node, f"{called}: {exc.what}", exc.instead)
            else:
                notes.wrong(node, f"{called} {is_what(node)}", exc.instead)
            return None

    return check


def list_of(
    item: Check, expected: str, *, may_be_empty: bool = True, of_words: bool = True
) -> Check:
    """A list, its good items only: the bad ones have been noted."""

    def check(node: Node, called: str, notes: Notes) -> tuple[Any, ...] | None:
        if of_words and isinstance(node, Scalar) and node.kind != NOTHING:
            shown = node.text if re.fullmatch("[A-Za-z0-9-]+", node.text) else quoted(node.text)
            _refuse(node, called, f"{expected}: in brackets, [{shown}]", notes)
            return None
        if not isinstance(node, Sequence) or not (node.items or may_be_empty):
            _refuse(node, called, expected, notes)
            return None
        values = (item(entry, f"an item of {called}", notes) for entry in node.items)
        return tuple(value for value in values if value is not None)

    return check


def table_of(check_name: Callable[[str], str], value: Check, expected: str) -> Check:
    """A mapping with names of the user's own; ``check_name`` says what is wrong with one, or nothing."""

    def check(node: Node, called: str, notes: Notes) -> dict[str, str] | None:
        if not isinstance(node, yaml_nodes.Mapping):
            _refuse(node, called, expected, notes)
            return None
        table: dict[str, str] = {}
        for name, (key, entry) in node.entries.items():
            problem = check_name(name)
            if problem:
                notes.wrong(key, f"{quoted(name)} cannot be a name in {called}", problem)
            # A name whose value is wrong is still a known name: whoever uses it is not wrong as well.
            table[name] = value(entry, f"{called}.{name}", notes) or ""
        return table

    return check


def record(
    keys: Mapping[str, Key], node: Node, called: str, notes: Notes, like: str = ""
) -> dict[str, Any] | None:
    """A mapping with known keys only: field -> value, of those that are right."""
    if not isinstance(node, yaml_nodes.Mapping):
        _refuse(node, called, f"a mapping, like {like}", notes)
        return None
    values: dict[str, Any] = {}
    for name, (place, entry) in node.entries.items():
        key = keys.get(name)
        if key is None:
            known = "the keys here are " + ", ".join(keys)
            instead = notes.did_you_mean(name, keys, otherwise=known)
            notes.wrong(place, f"unknown key {quoted(name)} in {called}", instead)
            continue
        value = key.check(entry, name, notes)
        if value is not None:
            values[key.field or name] = value
    return values


def is_missing(
    wanted: Collection[str], keys: Collection[str], node: yaml_nodes.Mapping, notes: Notes
) -> bool:
    """Whether none of the wanted keys is there, not even misspelt: that has been noted already."""
    if any(name in node.entries for name in wanted):
        return False
    unknown = [name for name in node.entries if name not in keys]
    return not any(notes.nearest(name, keys) in wanted for name in unknown)


def is_what(node: Node) -> str:
    """Completes "cpus ..."."""
    if isinstance(node, Scalar):
        if node.kind == NOTHING:
            return "has no value"
        is_bare = node.kind in (WHOLE, NUMBER, YES_NO) and len(node.text) < 40
        return f"is {node.text}" if is_bare else f"is {quoted(node.text)}"
    if isinstance(node, Sequence):
        return "is a list" if node.items else "is an empty list"
    return "is a mapping"


def is_unicode(text: str) -> bool:
    """Not so for half of a surrogate pair, which no file or process can be given."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(node: Node, called: str, expected: str, notes: Notes) -> None:
    notes.wrong(node, f"{called} {is_what(node)}", f"write {expected}")
