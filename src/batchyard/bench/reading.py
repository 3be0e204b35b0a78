"""Read results from JSON. Anybody may have edited the file, so every value is checked. Pure.

The types in ``results`` declare the allowed values; the parts of ``machine`` are declared here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from typing import Any, get_origin

from batchyard import json_fields
from batchyard.bench.results import FORMAT, VERSION, Amount, Count, Outcome, Results
from batchyard.errors import InputError
from batchyard.json_fields import JsonFieldError, expected
from batchyard.units import quote

_MAX_DEPTH = 8
#: the parts of the description of a machine that a table or a page uses
_MACHINE: dict[str, Any] = {
    "libraries": Mapping[str, str],
    "gpus": tuple[Mapping[str, str], ...],
    "price": Mapping[str, Any],
    "cpu_clock_mhz": Amount | None,
    "memory_bytes": Count | None,
}
_PRICE: dict[str, Any] = {"usd_h": Amount | None, "source": str}


class _ResultsReader(json_fields.Reader):
    """Refuses missing lists, text that cannot be written as UTF-8, and deep nesting."""

    def is_required(self, field: Field[Any], kind: Any) -> bool:
        return get_origin(kind) is tuple or is_dataclass(kind) or super().is_required(field, kind)

    def read_text(self, value: str, place: str) -> str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise expected("text that can be written as UTF-8", value, place) from None
        return value

    def read_any(self, value: Any, place: str) -> Any:
        return self._read_nested(value, place, 0)

    def _read_nested(self, value: Any, place: str, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise JsonFieldError(f"{place}: nested more than {_MAX_DEPTH} levels deep")
        if isinstance(value, dict):
            return {
                self.read_text(name, place): self._read_nested(entry, f"{place}.{name}", depth + 1)
                for name, entry in value.items()
            }
        if isinstance(value, list):
            return [
                self._read_nested(entry, f"{place}[{index}]", depth + 1)
                for index, entry in enumerate(value)
            ]
        return self.read_text(value, place) if isinstance(value, str) else value


def from_json(text: str, path: str) -> Results:
    """Return the results in the text of the file ``path``. Raises InputError."""
    document = _parse(text, path)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(
            f"{path}: this JSON file is not a result of `batchyard bench run`",
            hint="give a cpu-benchmark.json or gpu-benchmark.json",
        )
    version = document.get("version")
    if isinstance(version, bool) or version != VERSION:
        raise InputError(
            f"{path}: file format {json_fields.show(version)} is not supported;"
            f" this batchyard reads format {VERSION}",
            hint="read the file with the batchyard that wrote it, or measure again",
        )
    try:
        return _read_results(document)
    except JsonFieldError as exc:
        # A name in the file may contain control characters, which a terminal would obey.
        problem = str(exc) if str(exc).isprintable() else quote(str(exc), 300)
        raise InputError(
            f"{path}: this result of `batchyard bench run` was edited: {problem}",
            hint="measure again",
        ) from None


def _parse(text: str, path: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as exc:
        raise _syntax_error(text, path, exc) from None
    except RecursionError:
        problem = "its values are nested too deeply"
    except ValueError:
        problem = "it has a number with thousands of digits"
    raise InputError(
        f"{path}: not a result of `batchyard bench run`: {problem}",
        hint="give a file that `batchyard bench run` wrote",
    )


def _syntax_error(text: str, path: str, exc: json.JSONDecodeError) -> InputError:
    if not text.strip():
        return InputError(f"{path}: the file is empty", hint="measure again")
    # The parser reports a truncated word like `false` up to five characters before the end.
    is_near_end = exc.pos >= len(text.rstrip()) - 10 or exc.msg.startswith("Unterminated")
    if text.lstrip()[0] == "{" and is_near_end:
        return InputError(
            f"{path}:{exc.lineno}: the file was cut short: it ends in the middle of a value",
            hint="copy the file again from the machine that measured, or measure again",
        )
    return InputError(
        f"{path}:{exc.lineno}:{exc.colno}: this is not JSON: {exc.msg}",
        hint="give a file that `batchyard bench run` wrote",
    )


def _read_results(document: dict[str, Any]) -> Results:
    reader = _ResultsReader()
    # Fields that a newer version may have added at the top level are ignored.
    names = {field.name for field in fields(Results)}
    results: Results = reader.read(
        Results, {name: value for name, value in document.items() if name in names}, ""
    )
    _read_parts(reader, _MACHINE, results.machine, "machine")
    _read_parts(reader, _PRICE, results.machine.get("price", {}), "machine.price")
    for index, measurement in enumerate(results.measurements):
        if measurement.outcome is Outcome.OK and not measurement.warm_s:
            raise JsonFieldError(
                f"measurements[{index}].warm_s: there is no time, but the outcome is ok"
            )
    return results


def _read_parts(
    reader: _ResultsReader, kinds: Mapping[str, Any], part: Mapping[str, Any], place: str
) -> None:
    for name, kind in kinds.items():
        if name in part:
            reader.read(kind, part[name], f"{place}.{name}")
