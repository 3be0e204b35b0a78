"""The models of AWS APIs that botocore ships: routes, and checks that a request fits its operation.

Nothing in this module knows what an operation does.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Mapping
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

from batchyard.emulator.api_errors import InvalidRequestError

#: Types of whole numbers, with their number of bits.
_INTEGER_BITS = {"integer": 32, "long": 64}
_FLOAT_TYPES = ("float", "double")
#: (method, pattern of the path, operation)
_Pattern = tuple[str, re.Pattern[str], str]
#: Enumerations whose values AWS accepts in upper and lower case (facts, 1.4).
_CASELESS_ENUMS = ("RetryAction",)


#: Service -> structure -> members that AWS has added since botocore 1.43.11, with their shapes.
_ADDED_MEMBERS: dict[str, dict[str, dict[str, str]]] = {
    "ecs": {
        "DeploymentCircuitBreaker": {
            "resetOnHealthyTask": "Boolean",
            "thresholdConfiguration": "ThresholdConfiguration",
        },
    },
}
_ADDED_SHAPES: dict[str, dict[str, Any]] = {
    "ecs": {
        "ThresholdConfiguration": {
            "type": "structure",
            "required": ["type", "value"],
            "members": {"type": {"shape": "ThresholdType"}, "value": {"shape": "Integer"}},
        },
        "ThresholdType": {
            "type": "string",
            "enum": ["COUNT", "BOUNDED_PERCENT", "UNBOUNDED_PERCENT"],
        },
    },
}


@cache
def service_model(service: str) -> ServiceModel:
    document = Loader().load_service_model(service, "service-2")
    shapes = _ADDED_SHAPES.get(service, {}) | document["shapes"]
    for name, members in _ADDED_MEMBERS.get(service, {}).items():
        added = {member: {"shape": shape} for member, shape in members.items()}
        shapes[name] = shapes[name] | {"members": added | shapes[name]["members"]}
    return ServiceModel(document | {"shapes": shapes}, service)


@cache
def _routes(service: str) -> tuple[dict[tuple[str, str], str], list[_Pattern]]:
    """Return (method, path) -> operation, and the patterns of paths that contain members."""
    model = service_model(service)
    operations: dict[tuple[str, str], str] = {}
    patterns: list[_Pattern] = []
    for name in model.operation_names:
        method, path = (model.operation_model(name).http[key] for key in ("method", "requestUri"))
        if "{" in path:
            pattern = re.sub(r"\{(\w+)\+?\}", r"(?P<\1>.+)", path)
            patterns.append((method, re.compile(pattern), name))
        else:
            operations[method, path] = name
    return operations, patterns


def find_operation(service: str, method: str, path: str) -> tuple[str, dict[str, str]] | None:
    """Return the operation of a request and the members in its path; None for an unknown path."""
    operations, patterns = _routes(service)
    operation = operations.get((method, path))
    if operation is not None:
        return operation, {}
    for pattern_method, pattern, name in patterns:
        match = pattern.fullmatch(path) if pattern_method == method else None
        if match:
            return name, {member: unquote(text) for member, text in match.groupdict().items()}
    return None


# -- checks ---------------------------------------------------------------------------------------


def check_shape(shape: Shape, value: Any, place: str = "") -> None:
    """Raise InvalidRequestError for the first member of ``value`` that does not fit ``shape``.

    A member does not fit if its type, size or enumeration value is wrong, or if it is required and
    missing. ``place`` is the path of ``value`` in the request, for the message.
    """
    if isinstance(shape, StructureShape):
        _check_structure(shape, value, place)
    elif isinstance(shape, ListShape):
        _check_list(shape, value, place)
    elif isinstance(shape, MapShape):
        _check_map(shape, value, place)
    elif isinstance(shape, StringShape):
        _check_string(shape, value, place)
    elif shape.type_name in _INTEGER_BITS:
        _check_integer(shape, value, place)
    elif shape.type_name in _FLOAT_TYPES:
        _check_float(value, place)
    elif shape.type_name == "boolean":
        _require(isinstance(value, bool), place, value, "true or false")


def _check_structure(shape: StructureShape, value: Any, place: str) -> None:
    _require(isinstance(value, dict), place or "the request", value, "an object")
    for name in shape.required_members:
        if value.get(name) is None:
            raise InvalidRequestError(f"{_join(place, name)} must not be null")
    for name, member in shape.members.items():
        if value.get(name) is not None:
            check_shape(member, value[name], _join(place, name))


def _check_list(shape: ListShape, value: Any, place: str) -> None:
    _require(isinstance(value, list), place, value, "a list")
    _check_size(shape, len(value), place, "entries")
    for index, entry in enumerate(value):
        check_shape(shape.member, entry, f"{place}[{index}]")


def _check_map(shape: MapShape, value: Any, place: str) -> None:
    _require(isinstance(value, dict), place, value, "an object")
    # The model requires one entry of tags, but AWS's own clients send maps without entries.
    _check_size(shape, max(1, len(value)), place, "entries")
    for key, entry in value.items():
        check_shape(shape.key, key, f"a key of {place}")
        check_shape(shape.value, entry, f"{place}.{key}")


def _check_string(shape: StringShape, value: Any, place: str) -> None:
    _require(isinstance(value, str) and _is_encodable(value), place, value, "a string")
    _check_size(shape, len(value), place, "characters")
    text = value.upper() if shape.name in _CASELESS_ENUMS else value
    if shape.enum and text not in shape.enum:
        choices = ", ".join(shape.enum)
        raise InvalidRequestError(f"{place} should be one of {choices}; got {value!r}")


def _check_integer(shape: Shape, value: Any, place: str) -> None:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    _require(is_integer, place, value, "a whole number")
    bits = _INTEGER_BITS[shape.type_name]
    bound = 2 ** (bits - 1)
    _require(-bound <= value < bound, place, value, f"a whole number of {bits} bits")
    _check_size(shape, value, place)


def _check_float(value: Any, place: str) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # Python's json module reads Infinity and NaN, which are not JSON. An int may be too large to
    # become a float, so math.isfinite is only called with a float.
    is_finite = is_number and (isinstance(value, int) or math.isfinite(value))
    _require(is_finite, place, value, "a number")


def _check_size(shape: Shape, size: int, place: str, unit: str = "") -> None:
    """Check a number against the model's bounds, or, with a ``unit``, the length of a value."""
    minimum, maximum = shape.metadata.get("min", size), shape.metadata.get("max", size)
    if minimum <= size <= maximum:
        return
    verb, noun = ("have", f" {unit}") if unit else ("be", "")
    bound = f"at least {minimum}" if size < minimum else f"at most {maximum}"
    raise InvalidRequestError(f"{place} should {verb} {bound}{noun}; got {size}")


def _is_encodable(text: str) -> bool:
    """Return whether a file or an environment variable can hold the text.

    Half of a surrogate pair and NUL cannot be stored.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _require(is_valid: bool, place: str, value: Any, expected: str) -> None:
    if not is_valid:
        raise InvalidRequestError(f"{place} should be {expected}; got {reprlib.repr(value)}")


def drop_unknown_members(shape: Shape, value: Any) -> Any:
    """Return the value without nulls and without members that the model lacks, as AWS reads it."""
    if isinstance(shape, StructureShape) and isinstance(value, dict):
        return {
            name: drop_unknown_members(member, value[name])
            for name, member in shape.members.items()
            if value.get(name) is not None
        }
    if isinstance(shape, ListShape) and isinstance(value, list):
        return [drop_unknown_members(shape.member, entry) for entry in value]
    if isinstance(shape, MapShape) and isinstance(value, dict):
        return {key: drop_unknown_members(shape.value, entry) for key, entry in value.items()}
    return value


# -- CloudFormation -------------------------------------------------------------------------------


def from_cloudformation(shape: Shape, value: Any) -> Any:
    """Return the Properties of a CloudFormation resource in the spelling and types of the API.

    `ComputeEnvironmentName` becomes `computeEnvironmentName`. Numbers and booleans may be strings,
    as the parameters of a template are.
    """
    if isinstance(shape, StructureShape) and isinstance(value, Mapping):
        return _structure_from_cloudformation(shape, value)
    if isinstance(shape, ListShape) and isinstance(value, list):
        return [from_cloudformation(shape.member, entry) for entry in value]
    if isinstance(shape, MapShape) and isinstance(value, Mapping):
        return {str(key): from_cloudformation(shape.value, entry) for key, entry in value.items()}
    return _scalar_from_cloudformation(shape, value)


def _structure_from_cloudformation(
    shape: StructureShape, properties: Mapping[Any, Any]
) -> dict[str, Any]:
    members = {name.lower(): name for name in shape.members}
    return {
        members[key.lower()]: from_cloudformation(shape.members[members[key.lower()]], value)
        for key, value in ((str(key), value) for key, value in properties.items())
        if key.lower() in members
    }


def _scalar_from_cloudformation(shape: Shape, value: Any) -> Any:
    """Return the number or boolean that a string stands for, and for a string member its text."""
    if isinstance(shape, StringShape):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if not isinstance(value, str):
        return value
    if shape.type_name in _INTEGER_BITS and re.fullmatch(r"-?\d+", value):
        return int(value)
    if shape.type_name in _FLOAT_TYPES:
        return float(value)
    if shape.type_name == "boolean" and value in ("true", "false"):
        return value == "true"
    return value
