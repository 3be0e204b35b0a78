"""Results from JSON: a file that anybody may have edited, so every value is checked at the door. Pure.

What a field may be is said by the types in ``results``; what its numbers may be, here.
"""

from __future__ import annotations

import json
import math
import sys
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from batchyard.bench.results import FORMAT, VERSION, Outcome, Results
from batchyard.bench.workload import KINDS, LEAST, MOST, MOST_SIZE
from batchyard.errors import InputError
from batchyard.units import quoted

#: a call that is shorter or longer than this was not measured
_LEAST_S, _MOST_S = 1e-12, 1e12
#: of operations and bytes a second, which are told in billions
_LEAST_RATE, _MOST_RATE = 1e-60, 1e60
#: how deep a description of a machine may be nested
_DEEPEST = 8
#: the parts of a description of a machine that are more than words
_MACHINE: dict[str, Any] = {
    "libraries": Mapping[str, str],
    "gpus": tuple[Mapping[str, str], ...],
    "price": Mapping[str, Any],
    "cpu_clock_mhz": float | None,
    "memory_bytes": int | None,
}
_PRICE: dict[str, Any] = {"usd_h": float | None, "source": str}
_NAMES = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Mapping: "an object",
}


class Changed(Exception):
    """What was found, and where."""


def from_json(text: str, path: str) -> Results:
    value = _parsed(text, path)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise InputError(
            f"{path}: this is JSON, but no result of `batchyard bench run`",
            hint="give a cpu-benchmark.json or gpu-benchmark.json",
        )
    version = value.get("version")
    if isinstance(version, bool) or version != VERSION:
        raise InputError(
            f"{path}: format {quoted(_shown(version))}, and this batchyard reads format {VERSION}",
            hint="read it with the batchyard that wrote it, or measure again",
        )
    try:
        known = {one.name for one in fields(Results)}
        return _results({name: one for name, one in value.items() if name in known})
    except Changed as exc:
        # A name in the file may hold what a terminal would obey.
        said = str(exc) if str(exc).isprintable() else quoted(str(exc), 300)
        raise InputError(
            f"{path}: a result of `batchyard bench run` that was changed: {said}",
            hint="measure again",
        ) from None


def _parsed(text: str, path: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as exc:
        raise _unreadable(text, path, exc) from None
    except RecursionError:
        said = "its values are nested too deeply"
    except ValueError:
        said = "it has a number with thousands of digits"
    raise InputError(
        f"{path}: no result of `batchyard bench run`: {said}",
        hint="give a file of `batchyard bench run`",
    )


def _unreadable(text: str, path: str, exc: json.JSONDecodeError) -> InputError:
    if not text.strip():
        return InputError(f"{path}: the file is empty", hint="measure again")
    # A word like `false` is cut up to five characters before the end.
    if text.lstrip()[0] == "{" and (
        exc.pos >= len(text.rstrip()) - 10 or exc.msg.startswith("Unterminated")
    ):
        return InputError(
            f"{path}:{exc.lineno}: the file was cut short: it ends in the middle of a value",
            hint="copy it again from where it was measured, or measure again",
        )
    return InputError(
        f"{path}:{exc.lineno}:{exc.colno}: this is not JSON: {exc.msg}",
        hint="give a file of `batchyard bench run`",
    )


def _results(value: dict[str, Any]) -> Results:
    results: Results = _read(Results, value, "")
    _part_of(_MACHINE, results.machine, "machine")
    _part_of(_PRICE, results.machine.get("price", {}), "machine.price")
    return results


def _part_of(kinds: Mapping[str, Any], value: Mapping[str, Any], place: str) -> None:
    for name, kind in kinds.items():
        if name in value:
            _read(kind, value[name], f"{place}.{name}")


# -- values -----------------------------------------------------------------------------------------------------


def _read(kind: Any, value: Any, place: str) -> Any:
    """The value as what it is declared to be."""
    if get_origin(kind) in (Union, types.UnionType):
        inner = next(one for one in get_args(kind) if one is not type(None))
        return None if value is None else _read(inner, value, place)
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise _expected("a list", value, place)
        return tuple(_read(get_args(kind)[0], one, f"{place}[{n}]") for n, one in enumerate(value))
    if get_origin(kind) is Mapping:
        if not isinstance(value, dict):
            raise _expected(_NAMES[Mapping], value, place)
        return {
            _read(str, name, f"a name in {place}"): _read(get_args(kind)[1], one, f"{place}.{name}")
            for name, one in value.items()
        }
    if is_dataclass(kind):
        return _object(kind, value, place)
    if kind is Any:
        return _plain(value, place, 0)
    if issubclass(kind, StrEnum):
        if value not in list(kind):
            raise _expected(" or ".join(kind), value, place)
        return kind(value)
    return _scalar(kind, value, place)


def _object(kind: Any, value: Any, place: str) -> Any:
    if not isinstance(value, dict):
        raise _expected(_NAMES[Mapping], value, place)
    hints, at = _hints(kind), f"{place}." if place else ""
    for name in value:
        if name not in hints:
            raise Changed(f"{at}{quoted(name)}: there is no such field")
    known = {}
    for one in fields(kind):
        hint = hints[one.name]
        if one.name in value:
            known[one.name] = _read(hint, value[one.name], at + one.name)
        elif (
            get_origin(hint) is tuple
            or is_dataclass(hint)
            or one.default is one.default_factory is MISSING
        ):
            raise Changed(f"{at}{one.name} is missing")
    if (
        "outcome" in known
        and known["outcome"] is Outcome.OK
        and "size" in known
        and not known["warm_s"]
    ):
        raise Changed(f"{at}warm_s: there is no time, and it says that it was measured")
    return kind(**known)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _scalar(kind: type[Any], value: Any, place: str) -> Any:
    is_one = isinstance(value, int | float if kind is float else kind) and (
        kind is bool or not isinstance(value, bool)
    )
    if not is_one:
        raise _expected(_NAMES[kind], value, place)
    name = place.rpartition(".")[2].partition("[")[0]
    if kind is str:
        return _text(name, value, place)
    if kind is bool:
        return value
    low, high = _range(name, kind)
    # Nothing at all is another thing than something too small; a time that counts is never nothing.
    if not (
        low <= value <= high
        or (value == 0 and not name.startswith(("warm_s", "with_copies_s", "size")))
    ):
        raise _expected(f"{_NAMES[kind]} from {low:g} to {high:g}", value, place)
    return kind(value)


def _range(name: str, kind: type[Any]) -> tuple[float, float]:
    if kind is int:
        return (1 if name == "size" else 0), (math.inf if name == "seed" else MOST_SIZE)
    if name == "error":
        return 0, sys.float_info.max
    if name in ("gflops", "gbytes_s"):
        return _LEAST_RATE, _MOST_RATE
    return (_LEAST_S, _MOST_S) if name.endswith("_s") else (LEAST, MOST)


def _text(name: str, value: str, place: str) -> str:
    allowed = {"device": KINDS, "stands_for": ("", *KINDS)}.get(name)
    if allowed is not None and value not in allowed:
        raise _expected(" or ".join(filter(None, allowed)), value, place)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _expected("text that can be written", value, place) from None
    return value


def _plain(value: Any, place: str, depth: int) -> Any:
    """Anything, if it is not too deep to be shown."""
    if depth > _DEEPEST:
        raise Changed(f"{place}: it is nested too deeply")
    if isinstance(value, dict):
        return {
            _text("", name, place): _plain(one, f"{place}.{name}", depth + 1)
            for name, one in value.items()
        }
    if isinstance(value, list):
        return [_plain(one, f"{place}[{n}]", depth + 1) for n, one in enumerate(value)]
    return _text("", value, place) if isinstance(value, str) else value


def _expected(what: str, value: Any, place: str) -> Changed:
    found = quoted(value, 40) if isinstance(value, str) else _shown(value)
    return Changed(f"{place or 'the file'}: {what} was expected, and there is {found}")


def _shown(value: Any) -> str:
    """Short, and without going deep."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return value if isinstance(value, str) else json.dumps(value)[:60]
