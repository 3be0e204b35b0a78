"""Facts as JSON and back, by their types. Pure: text in, values out.

A ``Missing`` is ``{"missing": why, "action": ...}``. Reading checks every value against the type of its field, and says
where a file is wrong: it may come from another version, or from somebody's editor.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from batchyard.doctor.facts import Facts, Missing, Survey
from batchyard.doctor.host.facts import HostFacts
from batchyard.errors import InputError
from batchyard.units import quoted

FORMAT = 1
#: what a file of facts can be about
MODELS: dict[str, type] = {"aws": Facts, "host": HostFacts, "survey": Survey}

T = TypeVar("T")


def dump(facts: Facts | Survey | HostFacts) -> str:
    about = next(name for name, model in MODELS.items() if isinstance(facts, model))
    return (
        json.dumps({"batchyard_facts": FORMAT, "about": about, "facts": plain(facts)}, indent=2)
        + "\n"
    )


def load(text: str, name: str = "facts") -> Facts | Survey | HostFacts:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InputError(
            f"{name} is not JSON: {exc}", hint="give a file that `--save` wrote"
        ) from None
    if not isinstance(value, dict) or "batchyard_facts" not in value:
        raise InputError(
            f"{name} holds no facts of batchyard", hint="give a file that `--save` wrote"
        )
    if value["batchyard_facts"] != FORMAT:
        found = quoted(str(value["batchyard_facts"]))
        raise InputError(
            f"{name} is of format {found}; this version reads {FORMAT}",
            hint="use the version that wrote it",
        )
    about = value.get("about")
    if not isinstance(about, str) or about not in MODELS:
        raise InputError(
            f"{name}: about: expected one of {', '.join(MODELS)}, found {quoted(str(about))}"
        )
    return cast(
        "Facts | Survey | HostFacts", read(value.get("facts"), MODELS[about], f"{name}: facts")
    )


def plain(value: Any) -> Any:
    """Fields that have their default are left out."""
    if isinstance(value, Missing):
        return {"missing": value.why} | ({"action": value.action} if value.action else {})
    if is_dataclass(value):
        kept = ((field, getattr(value, field.name)) for field in fields(value))
        return {field.name: plain(item) for field, item in kept if item != field.default}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value


def read(value: Any, wanted: Any, where: str) -> Any:
    if get_origin(wanted) in (Union, UnionType):
        return _read_union(value, get_args(wanted), where)
    if get_origin(wanted) is tuple:
        if not isinstance(value, list):
            raise _wrong(where, "a list", value)
        return tuple(
            read(item, get_args(wanted)[0], f"{where}[{i}]") for i, item in enumerate(value)
        )
    if is_dataclass(wanted) and isinstance(wanted, type):
        return _read_object(value, wanted, where)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    is_bool = isinstance(value, bool)
    if not isinstance(value, wanted) or (is_bool and wanted is not bool):
        raise _wrong(where, wanted.__name__, value)
    return value


def _read_union(value: Any, options: tuple[Any, ...], where: str) -> Any:
    if value is None and NoneType in options:
        return None
    if Missing in options and isinstance(value, dict) and "missing" in value:
        return Missing(
            read(value["missing"], str, where), read(value.get("action", ""), str, where)
        )
    rest = [option for option in options if option not in (NoneType, Missing)]
    return read(value, rest[0], where)


def _read_object(value: Any, wanted: type[T], where: str) -> T:
    if not isinstance(value, dict):
        raise _wrong(where, "an object", value)
    hints = _hints(cast(Any, wanted))
    unknown = sorted(set(value) - set(hints))
    if unknown:
        raise InputError(
            f"{where}: {quoted(unknown[0])} is not known here", hint="it may be of a newer version"
        )
    needed = [
        f.name
        for f in fields(cast(Any, wanted))
        if f.default is MISSING and f.default_factory is MISSING
    ]
    for name in needed:
        if name not in value:
            raise InputError(f"{where}: {name} is missing")
    return wanted(
        **{name: read(item, hints[name], f"{where}.{name}") for name, item in value.items()}
    )


@cache
def _hints(wanted: type) -> dict[str, Any]:
    return get_type_hints(wanted)


def _wrong(where: str, expected: str, value: Any) -> InputError:
    return InputError(f"{where}: expected {expected}, found {quoted(json.dumps(value))}")
