"""Types of the values in a YAML file. A type has a check, a JSON schema, and a name for the docs.

``key_types`` and ``file_keys`` use them for the keys of a pipeline. A check is called with the YAML
node, the label of the value in messages, and the collected mistakes. It returns the value, or None
after it has added a mistake. None is never a valid value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from batchyard import yaml_positions
from batchyard.pipeline_file.command_weights import parse_weight
from batchyard.pipeline_file.key_limits import describe_range
from batchyard.pipeline_file.mistakes import Mistakes
from batchyard.quick_dataclasses import dataclass
from batchyard.units import AmountError, quote
from batchyard.yaml_positions import (
    NOTHING,
    NUMBER,
    TEXT,
    WHOLE,
    YES_NO,
    Node,
    Scalar,
    Sequence,
)

Check = Callable[[Node, str, Mistakes], Any]

_TRUE_WORDS = ("yes", "true", "on")
#: Digits of a whole number. No limit here needs more, and int() refuses thousands of digits.
_MAX_DIGITS = 15
#: A scalar is text as it is written, so that 0.10 and true need no quotes.
_SCALAR_SCHEMA = {"type": ["string", "number", "boolean"]}


@dataclass(frozen=True, slots=True)
class ValueType:
    """The set of values that a key accepts."""

    check: Check
    #: JSON schema of the same values, as far as a schema can express them
    schema: Mapping[str, Any]
    #: name of the type in the docs, for example "list of text"
    name: str


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a mapping in the file."""

    type: ValueType
    #: one or two sentences of Markdown, for the docs and for editors
    description: str
    #: value that applies where the key is absent, as it is written in JSON
    default: Any = None
    #: what applies where the key is absent and has no default value
    absence: str = "none"
    is_required: bool = False
    examples: tuple[Any, ...] = ()
    #: heading in docs/pipeline-file.md that explains the key further
    see: str = ""
    #: field of the model that the key fills, where it is not named like the key
    field: str = ""
    #: also allowed in the file's ``defaults``
    in_defaults: bool = False

    def to_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the key's value, with the key's description."""
        schema = {**self.type.schema, "description": self.description}
        if self.default is not None:
            schema["default"] = self.default
        if self.examples:
            schema["examples"] = list(self.examples)
        return schema


def whole_number(minimum: int, maximum: int) -> ValueType:
    """Return the type of the whole numbers from ``minimum`` to ``maximum``, both included."""
    expected = describe_range(minimum, maximum)

    def check(node: Node, label: str, mistakes: Mistakes) -> int | None:
        text = _text_of_kind(node, WHOLE).replace("_", "")
        if text and len(text) <= _MAX_DIGITS and minimum <= int(text) <= maximum:
            return int(text)
        # "4" and 1,000 are easy to correct: the message names the very number to write.
        digits = _text_of_kind(node, TEXT).replace(",", "")
        if re.fullmatch("[0-9]{1,9}", digits) and minimum <= int(digits) <= maximum:
            _refuse(node, label, f"{int(digits)}, without quotes or commas", mistakes)
        else:
            _refuse(node, label, expected, mistakes)
        return None

    schema = {"type": "integer", "minimum": minimum, "maximum": maximum}
    return ValueType(check, schema, f"{minimum:,} to {maximum:,}")


def _check_weight(node: Node, label: str, mistakes: Mistakes) -> float | None:
    weight = parse_weight(node.text) if isinstance(node, Scalar) else None
    if weight is None:
        _refuse(node, label, "a number, 0 or more", mistakes)
    return weight


WEIGHT = ValueType(_check_weight, {"type": "number", "minimum": 0}, "number")


def _check_boolean(node: Node, label: str, mistakes: Mistakes) -> bool | None:
    if isinstance(node, Scalar) and node.kind == YES_NO:
        return node.text.lower() in _TRUE_WORDS
    _refuse(node, label, "true or false", mistakes)
    return None


BOOLEAN = ValueType(_check_boolean, {"type": "boolean"}, "true or false")


def check_text(node: Node, label: str, mistakes: Mistakes, expected: str) -> str | None:
    """Return a scalar as it is written: ``true`` is the text "true", and 0.10 keeps its zero."""
    if not isinstance(node, Scalar) or node.kind == NOTHING:
        _refuse(node, label, expected, mistakes)
        return None
    if not node.text.isprintable() and ("\0" in node.text or not is_unicode(node.text)):
        mistakes.add(node, f"{label} contains a NUL or half a character", "remove it")
        return None
    return node.text


def text(expected: str, name: str = "text") -> ValueType:
    """Return the type of any scalar, read as text; ``expected`` completes "write ..."."""

    def check(node: Node, label: str, mistakes: Mistakes) -> str | None:
        return check_text(node, label, mistakes, expected)

    return ValueType(check, _SCALAR_SCHEMA, name)


def matching_text(
    pattern: str,
    expected: str,
    *,
    max_length: int | None = None,
    suggest: Callable[[str], str] | None = None,
) -> ValueType:
    """Return the type of the text that ``pattern`` matches as a whole.

    ``max_length`` is in characters. ``suggest`` returns a valid text that is near to an invalid
    one, for the message.
    """
    compiled = re.compile(pattern)

    def check(node: Node, label: str, mistakes: Mistakes) -> str | None:
        value = check_text(node, label, mistakes, expected)
        is_short = value is None or max_length is None or len(value) <= max_length
        if value is None or (compiled.fullmatch(value) and is_short):
            return value
        suggestion = suggest(value) if suggest else ""
        _refuse(node, label, expected + (f", like {suggestion}" if suggestion else ""), mistakes)
        return None

    schema: dict[str, Any] = {"type": "string", "pattern": f"^{pattern}$"}
    if max_length is not None:
        schema["maxLength"] = max_length
    return ValueType(check, schema, "text")


def check_amount(
    node: Node, label: str, mistakes: Mistakes, convert: Callable[[str], int]
) -> int | None:
    """Return the amount that ``convert``, a function of units.py, makes of the node's text."""
    is_empty = not isinstance(node, Scalar) or node.kind == NOTHING
    try:
        return convert(node.text if isinstance(node, Scalar) and not is_empty else "")
    except AmountError as exc:
        problem = f"{label} {describe(node)}" if is_empty else f"{label}: {exc.problem}"
        mistakes.add(node, problem, exc.suggestion)
        return None


def list_of(
    item: ValueType,
    expected: str,
    name: str,
    *,
    may_be_empty: bool = True,
    suggest_brackets: bool = True,
    max_items: int | None = None,
) -> ValueType:
    """Return the type of a list of ``item`` values.

    The check returns the valid items; the invalid ones have mistakes. ``suggest_brackets`` is for
    lists of scalars: in place of ``needs: a`` the message suggests ``[a]``. ``max_items``: None for
    no limit.
    """

    def check(node: Node, label: str, mistakes: Mistakes) -> tuple[Any, ...] | None:
        if suggest_brackets and isinstance(node, Scalar) and node.kind != NOTHING:
            is_word = re.fullmatch("[A-Za-z0-9-]+", node.text)
            bracketed = f"[{node.text if is_word else quote(node.text)}]"
            _refuse(node, label, f"{expected}: in brackets, {bracketed}", mistakes)
            return None
        if not isinstance(node, Sequence) or not (node.items or may_be_empty):
            _refuse(node, label, expected, mistakes)
            return None
        if max_items is not None and len(node.items) > max_items:
            problem = f"{label} has {len(node.items):,} items"
            mistakes.add(node, problem, f"write at most {max_items:,}")
            return None
        values = (item.check(entry, f"an item of {label}", mistakes) for entry in node.items)
        return tuple(value for value in values if value is not None)

    schema: dict[str, Any] = {"type": "array", "items": item.schema}
    if max_items is not None:
        schema["maxItems"] = max_items
    if not may_be_empty:
        schema["minItems"] = 1
    return ValueType(check, schema, name)


def mapping_of(
    name_problem: Callable[[str], str],
    name_pattern: str,
    value_type: ValueType,
    expected: str,
) -> ValueType:
    """Return the type of a mapping from names that the user chooses to values of one type.

    ``name_problem`` returns what to write instead of an invalid name, or "" for a valid one;
    ``name_pattern`` is the same rule for the schema.
    """

    def check(node: Node, label: str, mistakes: Mistakes) -> dict[str, str] | None:
        if not isinstance(node, yaml_positions.Mapping):
            _refuse(node, label, expected, mistakes)
            return None
        values: dict[str, str] = {}
        for name, (key, entry) in node.entries.items():
            problem = name_problem(name)
            if problem:
                mistakes.add(key, f"{quote(name)} cannot be a name in {label}", problem)
            # A name with an invalid value is still defined: its uses are no mistakes.
            values[name] = value_type.check(entry, f"{label}.{name}", mistakes) or ""
        return values

    schema = {
        "type": "object",
        "propertyNames": {"pattern": name_pattern},
        "additionalProperties": value_type.schema,
    }
    return ValueType(check, schema, "mapping")


def check_mapping(
    keys: Mapping[str, Key], node: Node, label: str, mistakes: Mistakes, like: str = ""
) -> dict[str, Any] | None:
    """Return field -> value of the valid values in a mapping that has these ``keys``.

    ``like`` is an example of such a mapping, for the message.
    """
    if not isinstance(node, yaml_positions.Mapping):
        _refuse(node, label, f"a mapping, like {like}", mistakes)
        return None
    values: dict[str, Any] = {}
    for name, (key_node, entry) in node.entries.items():
        key = keys.get(name)
        if key is None:
            all_keys = "the keys here are " + ", ".join(keys)
            suggestion = mistakes.did_you_mean(name, keys, otherwise=all_keys)
            mistakes.add(key_node, f"unknown key {quote(name)} in {label}", suggestion)
            continue
        value = key.type.check(entry, name, mistakes)
        if value is not None:
            values[key.field or name] = value
    return values


def mapping_schema(keys: Mapping[str, Key]) -> dict[str, Any]:
    """Return the JSON schema of a mapping that has these ``keys`` and no other."""
    return {
        "type": "object",
        "required": [name for name, key in keys.items() if key.is_required],
        "additionalProperties": False,
        "properties": {name: key.to_schema() for name, key in keys.items()},
    }


def is_missing(
    names: Collection[str], keys: Collection[str], node: yaml_positions.Mapping, mistakes: Mistakes
) -> bool:
    """Whether the mapping has none of ``names``, not even misspelt.

    A misspelt key has its mistake already.
    """
    if any(name in node.entries for name in names):
        return False
    unknown = [name for name in node.entries if name not in keys]
    return not any(mistakes.nearest(name, keys) in names for name in unknown)


def describe(node: Node) -> str:
    """Return what the node holds, in words that complete "cpus ..."."""
    if isinstance(node, Scalar):
        if node.kind == NOTHING:
            return "has no value"
        is_bare = node.kind in (WHOLE, NUMBER, YES_NO) and len(node.text) < 40
        return f"is {node.text}" if is_bare else f"is {quote(node.text)}"
    if isinstance(node, Sequence):
        return "is a list" if node.items else "is an empty list"
    return "is a mapping"


def is_unicode(text: str) -> bool:
    """Whether the text can be written as UTF-8: half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text_of_kind(node: Node, kind: str) -> str:
    return node.text if isinstance(node, Scalar) and node.kind == kind else ""


def _refuse(node: Node, label: str, expected: str, mistakes: Mistakes) -> None:
    mistakes.add(node, f"{label} {describe(node)}", f"write {expected}")
