"""AWS's own description of its API, as botocore carries it: routes, and whether a request has the right shape."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import unquote

from botocore.loaders import Loader  # type: ignore[import-untyped]
from botocore.model import (  # type: ignore[import-untyped]
    ListShape,
    MapShape,
    ServiceModel,
    Shape,
    StringShape,
    StructureShape,
)

from batchyard.emulator.failures import ClientException

#: types of whole numbers, and how many bits they have
_NUMBERS = {"integer": 32, "long": 64}
#: words that AWS takes in upper and lower case (facts, 1.4)
_ANY_CASE = ("RetryAction",)


@dataclass(frozen=True, slots=True)
class Route:
    operation: str
    method: str
    pattern: re.Pattern[str]
    input: StructureShape | None


@cache
def service(name: str) -> ServiceModel:
    return ServiceModel(Loader().load_service_model(name, "service-2"), name)


@cache
def routes(name: str) -> tuple[Route, ...]:
    model = service(name)
    return tuple(_route(model, operation) for operation in model.operation_names)


def _route(model: ServiceModel, name: str) -> Route:
    operation = model.operation_model(name)
    pattern = re.sub(r"\{(\w+)\+?\}", r"(?P<\1>.+)", operation.http["requestUri"])
    return Route(name, operation.http["method"], re.compile(pattern), operation.input_shape)


def find_route(name: str, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
    """The operation that a request is for, and what its path says."""
    for route in routes(name):
        found = route.pattern.fullmatch(path) if route.method == method else None
        if found:
            return route, {member: unquote(value) for member, value in found.groupdict().items()}
    return None


# -- is it of the right shape? ----------------------------------------------------------------------------------


def check(shape: Shape, value: Any, where: str = "") -> None:
    """Raises ClientException with the first thing that is wrong: a type, a missing member, a word that is none."""
    if isinstance(shape, StructureShape):
        _check_structure(shape, value, where)
    elif isinstance(shape, ListShape):
        _require(isinstance(value, list), where, value, "a list")
        _check_size(shape, len(value), where, "entries")
        for number, item in enumerate(value):
            check(shape.member, item, f"{where}[{number}]")
    elif isinstance(shape, MapShape):
        _require(isinstance(value, dict), where, value, "an object")
        # AWS's description asks for one entry at least, and its clients send none all the same.
        _check_size(shape, max(1, len(value)), where, "entries")
        for key, item in value.items():
            check(shape.key, key, f"a key of {where}")
            check(shape.value, item, f"{where}.{key}")
    elif isinstance(shape, StringShape):
        _require(isinstance(value, str) and _is_text(value), where, value, "a string")
        _check_size(shape, len(value), where, "characters")
        if shape.enum and (value.upper() if shape.name in _ANY_CASE else value) not in shape.enum:
            raise ClientException(
                f"{where} should be one of {', '.join(shape.enum)}; got {value!r}"
            )
    elif shape.type_name in _NUMBERS:
        _require(
            isinstance(value, int) and not isinstance(value, bool), where, value, "a whole number"
        )
        most = 2 ** (_NUMBERS[shape.type_name] - 1)
        _require(
            -most <= value < most,
            where,
            value,
            f"a whole number of {_NUMBERS[shape.type_name]} bits",
        )
        _check_size(shape, value, where)
    elif shape.type_name in ("float", "double"):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # JSON has neither, but Python reads them.
        _require(
            is_number and value not in (math.inf, -math.inf) and value == value,
            where,
            value,
            "a number",
        )
    elif shape.type_name == "boolean":
        _require(isinstance(value, bool), where, value, "true or false")


def _check_structure(shape: StructureShape, value: Any, where: str) -> None:
    _require(isinstance(value, dict), where or "the request", value, "an object")
    for name in shape.required_members:
        if value.get(name) is None:
            raise ClientException(f"{_join(where, name)} must not be null")
    for name, member in shape.members.items():
        if value.get(name) is not None:
            check(member, value[name], _join(where, name))


def _check_size(shape: Shape, size: int, where: str, of_what: str = "") -> None:
    """Against the least and the most that AWS's description allows, of what it has (or of itself: a number)."""
    least, most = shape.metadata.get("min", size), shape.metadata.get("max", size)
    if not least <= size <= most:
        verb, what = ("have", f" {of_what}") if of_what else ("be", "")
        bounds = f"at least {least}" if size < least else f"at most {most}"
        raise ClientException(f"{where} should {verb} {bounds}{what}; got {size}")


def _is_text(value: str) -> bool:
    """Whether it could be in a file or in a process's environment: half of a surrogate pair and NUL could not."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _require(holds: bool, where: str, value: Any, wanted: str) -> None:
    if not holds:
        raise ClientException(f"{where} should be {wanted}; got {reprlib.repr(value)}")


def known(shape: Shape, value: Any) -> Any:
    """The value without members that the shape does not know, which AWS passes over, and without nulls."""
    if isinstance(shape, StructureShape) and isinstance(value, dict):
        return {
            name: known(member, value[name])
            for name, member in shape.members.items()
            if value.get(name) is not None
        }
    if isinstance(shape, ListShape) and isinstance(value, list):
        return [known(shape.member, item) for item in value]
    if isinstance(shape, MapShape) and isinstance(value, dict):
        return {key: known(shape.value, item) for key, item in value.items()}
    return value


# -- CloudFormation's spelling ----------------------------------------------------------------------------------


def from_properties(shape: Shape, value: Any) -> Any:
    """A resource's Properties as the API spells them: `ComputeEnvironmentName` -> `computeEnvironmentName`. Numbers and
    booleans may come as strings, as a template's parameters do."""
    if isinstance(shape, StructureShape) and isinstance(value, Mapping):
        members = {name.lower(): name for name in shape.members}
        found = {}
        for key, item in value.items():
            name = members.get(str(key).lower())
            if name is not None:
                found[name] = from_properties(shape.members[name], item)
        return found
    if isinstance(shape, ListShape) and isinstance(value, list):
        return [from_properties(shape.member, item) for item in value]
    if isinstance(shape, MapShape) and isinstance(value, Mapping):
        return {str(key): from_properties(shape.value, item) for key, item in value.items()}
    if isinstance(shape, StringShape):
        return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
    if shape.type_name in _NUMBERS and isinstance(value, str) and re.fullmatch(r"-?\d+", value):
        return int(value)
    if shape.type_name in ("float", "double") and isinstance(value, str):
        return float(value)
    if shape.type_name == "boolean" and value in ("true", "false"):
        return value == "true"
    return value
