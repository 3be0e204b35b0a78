"""Print a Pipeline as the pipeline file that it is, and keys from Python as a file. Pure.

Values of `defaults` and of the file stand in each step, params are filled in, and what is the
default is left out. Reading the text gives the same Pipeline.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import count
from typing import Any

from batchyard.errors import InputError
from batchyard.pipeline import ExitRule, Mount, Need, Pipeline, Step
from batchyard.pipeline_file.command_lists import PARAM_START
from batchyard.pipeline_file.file_keys import STEP_KEYS

_MEMORY = {"GiB": 1024, "MiB": 1}
_TIME = {"h": 3600, "m": 60, "s": 1}
#: Fields of a step whose key has a unit -> units and their sizes, the largest first.
_UNITS = {"memory_mib": _MEMORY, "shm_mib": _MEMORY, "timeout_s": _TIME, "expect_s": _TIME}
_EMPTY_STEP = Step("")


def print_pipeline(pipeline: Pipeline) -> str:
    """Return the text of the pipeline file that the pipeline is."""
    document: dict[str, Any] = {"name": pipeline.name}
    steps = [_step_keys(step) for step in pipeline.steps]
    if params := dict(pipeline.params):
        _keep_filled(steps, params)
        document["params"] = params
    if pipeline.workspace is not None:
        document["workspace"] = pipeline.workspace
    if pipeline.fail_fast:
        document["fail_fast"] = True
    if pipeline.spot is not None:
        document["spot"] = {"fallback_after": pipeline.spot.reclaims or str(pipeline.spot)}
    if pipeline.max_cost_usd is not None:
        document["max_cost"] = pipeline.max_cost_usd
    document["steps"] = steps
    return _dump(document)


def _keep_filled(steps: Sequence[dict[str, Any]], params: dict[str, str]) -> None:
    """Let a reader of the file leave ``${params.NAME}`` in commands that have it from a param.

    There is no other way to write it than with a param for its first characters.
    """
    if not any(PARAM_START in text for keys in steps for text in _commands_of(keys)):
        return
    first = "${"
    unused = (f"dollar{number}" for number in count(1) if f"dollar{number}" not in params)
    name = next((name for name, value in params.items() if value == first), None) or next(unused)
    params[name] = first
    written = PARAM_START.replace(first, "${params." + name + "}")
    for keys in steps:
        if "command" in keys:
            keys["command"] = keys["command"].replace(PARAM_START, written)
        if "commands" in keys:
            keys["commands"] = [text.replace(PARAM_START, written) for text in keys["commands"]]


def _commands_of(keys: Mapping[str, Any]) -> Sequence[str]:
    return keys["commands"] if "commands" in keys else (keys.get("command", ""),)


def print_keys(keys: Mapping[str, object]) -> str:
    """Return keys of a pipeline file, as Python values, as the text of a file.

    Raises InputError for a value that YAML cannot have.
    """
    return _dump({name: _to_plain(value, name) for name, value in keys.items()})


def _step_keys(step: Step) -> dict[str, Any]:
    keys = {}
    for name, key in STEP_KEYS.items():
        field = key.field or name
        if field in _STEP_FIELDS and getattr(step, field) != getattr(_EMPTY_STEP, field):
            keys[name] = _to_value(field, getattr(step, field))
    return keys


_STEP_FIELDS = frozenset(field.name for field in fields(Step))


def _to_value(field: str, value: object) -> object:
    """Return the value of a key from the value of the step's field."""
    if field in _UNITS and isinstance(value, int):
        unit, size = next(entry for entry in _UNITS[field].items() if value % entry[1] == 0)
        return f"{value // size}{unit}"
    if isinstance(value, Mapping):
        return dict(value)
    return [_to_item(item) for item in value] if isinstance(value, tuple) else value


def _to_item(item: object) -> object:
    if isinstance(item, Need):
        return {"step": item.step, "each": True} if item.each else item.step
    if isinstance(item, ExitRule):
        return str(item)
    if isinstance(item, Mount):
        empty = Mount("")
        values = {field.name: getattr(item, field.name) for field in fields(Mount)}
        return {name: value for name, value in values.items() if value != getattr(empty, name)}
    return item


def _to_plain(value: object, label: str) -> object:
    """Return the value with the types that YAML has. Raises InputError."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, Mapping):
        return {str(name): _to_plain(entry, f"{label}: {name}") for name, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_to_plain(entry, label) for entry in value]
    raise InputError(
        f"{label} is {value!r}", hint="write text, numbers, lists and mappings, as in a file"
    )


def _dump(document: Mapping[str, Any]) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)

    Dumper.add_representer(str, represent_text)
    text: str = yaml.dump(
        dict(document), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=2**31
    )
    return text
