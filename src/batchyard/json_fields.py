"""Read parsed JSON into typed values. An error names the place of the wrong value. Pure.

``read(Disk, document, "disks[0]")`` returns a ``Disk`` if ``document`` has its fields, each of the
annotated type. Known annotations: ``str``, ``int``, ``float``, ``bool``, ``Path``, ``Any``, enums,
dataclasses, ``X | None``, ``tuple[X, ...]``, ``Mapping[str, X]``, and ``Annotated`` with a
``Range`` or a ``OneOf``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from batchyard.units import quote

_NAMES = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}
_REQUIRED = object()


class JsonFieldError(ValueError):
    """A value of a JSON document is missing or wrong. The message begins with its place."""


@dataclass(frozen=True, slots=True)
class Range:
    """Smallest and largest value of an annotated number. ``allows_zero``: or zero."""

    low: float
    high: float
    allows_zero: bool = False

    def problem(self, value: Any) -> str:
        """Return what is expected instead of ``value``; empty if it is allowed."""
        if self.low <= value <= self.high or (self.allows_zero and value == 0):
            return ""
        return f"from {self.low:g} to {self.high:g}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """The allowed values of an annotated text."""

    values: tuple[str, ...]


def read(kind: Any, value: Any, place: str) -> Any:
    """Return ``value`` as an instance of the annotation ``kind``. Raises JsonFieldError."""
    return Reader().read(kind, value, place)


def read_field(
    document: Mapping[str, Any], name: str, kind: Any, place: str = "", default: Any = _REQUIRED
) -> Any:
    """Return the field ``name`` as ``kind``, or ``default``. Raises JsonFieldError."""
    if name in document:
        return read(kind, document[name], place_of(place, name))
    if default is _REQUIRED:
        raise JsonFieldError(f"{place_of(place, name)} is missing")
    return default


def place_of(place: str, name: str) -> str:
    """Return the place of the field ``name`` of the object at ``place``."""
    return f"{place}.{name}" if place else name


def expected(description: str, value: Any, place: str) -> JsonFieldError:
    """Return an error that says what is expected at ``place``, and what is there instead."""
    return JsonFieldError(f"{place or 'the document'}: expected {description}, found {show(value)}")


def show(value: Any) -> str:
    """Return a JSON value on one short line; objects and lists only by their type."""
    if isinstance(value, dict | list):
        return _NAMES[type(value)]
    return quote(value, 40) if isinstance(value, str) else json.dumps(value)[:60]


class Reader:
    """Reads values by their annotations. Subclasses change how some of them are read."""

    def read(self, kind: Any, value: Any, place: str) -> Any:
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in (Union, UnionType):
            return self.read_union(arguments, value, place)
        if origin is Annotated:
            return self._read_annotated(arguments[0], arguments[1:], value, place)
        if origin is tuple:
            return self._read_list(arguments[0], value, place)
        if origin is not None and issubclass(origin, Mapping):
            return self._read_mapping(arguments[1], value, place)
        if is_dataclass(kind):
            return self._read_object(kind, value, place)
        if kind is Any:
            return self.read_any(value, place)
        return self._read_scalar(kind, value, place)

    def read_union(self, kinds: Sequence[Any], value: Any, place: str) -> Any:
        """Read ``X | None``."""
        if value is None and NoneType in kinds:
            return None
        return self.read(next(kind for kind in kinds if kind is not NoneType), value, place)

    def read_any(self, value: Any, place: str) -> Any:
        """Read a value whose type is not declared."""
        return value

    def read_text(self, value: str, place: str) -> str:
        """Read a text, which is known to be a ``str``."""
        return value

    def is_required(self, field: Field[Any], kind: Any) -> bool:
        """Whether the JSON object must have this field of a dataclass."""
        return field.default is MISSING and field.default_factory is MISSING

    def _read_annotated(self, kind: Any, constraints: Sequence[Any], value: Any, place: str) -> Any:
        result = self.read(kind, value, place)
        for constraint in constraints:
            if isinstance(constraint, Range) and (problem := constraint.problem(result)):
                raise expected(f"{_NAMES[kind]} {problem}", value, place)
            if isinstance(constraint, OneOf) and result not in constraint.values:
                raise expected(" or ".join(filter(None, constraint.values)), value, place)
        return result

    def _read_list(self, kind: Any, value: Any, place: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise expected(_NAMES[list], value, place)
        return tuple(
            self.read(kind, entry, f"{place}[{index}]") for index, entry in enumerate(value)
        )

    def _read_mapping(self, kind: Any, value: Any, place: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise expected(_NAMES[dict], value, place)
        return {
            self.read_text(name, f"a name in {place}"): self.read(
                kind, entry, place_of(place, name)
            )
            for name, entry in value.items()
        }

    def _read_object(self, kind: Any, value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise expected(_NAMES[dict], value, place)
        hints = _hints(kind)
        for name in value:
            if name not in hints:
                raise JsonFieldError(f"{place or 'the document'}: unknown field {quote(name)}")
        values = {}
        for field in fields(kind):
            field_place = place_of(place, field.name)
            if field.name in value:
                values[field.name] = self.read(hints[field.name], value[field.name], field_place)
            elif self.is_required(field, hints[field.name]):
                raise JsonFieldError(f"{field_place} is missing")
        return kind(**values)

    def _read_scalar(self, kind: Any, value: Any, place: str) -> Any:
        if issubclass(kind, Enum):
            return _read_enum(kind, value, place)
        if kind is Path:
            return Path(self.read(str, value, place))
        # In Python, true and false are whole numbers too.
        if not isinstance(value, int | float if kind is float else kind) or (
            isinstance(value, bool) and kind is not bool
        ):
            raise expected(_NAMES[kind], value, place)
        if isinstance(value, str):
            return self.read_text(value, place)
        try:
            return kind(value)
        except OverflowError:
            raise expected(_NAMES[kind], value, place) from None


def _read_enum(kind: type[Enum], value: Any, place: str) -> Enum:
    choices = [member.value for member in kind]
    if value not in choices:
        raise expected(" or ".join(map(str, choices)), value, place)
    return kind(value)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)
