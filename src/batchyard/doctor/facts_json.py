"""Convert facts to JSON and back. Pure: text in, values out.

A ``Missing`` is ``{"missing": reason, "action": ...}``. Reading checks every value against the
type of its field, because another version or a text editor may have written the file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from batchyard import json_fields
from batchyard.doctor.facts import Facts, Missing, Survey
from batchyard.doctor.host.facts import HostFacts
from batchyard.errors import InputError
from batchyard.units import quote

FORMAT = 1
#: what a file of facts can be about
MODELS: dict[str, type] = {"aws": Facts, "host": HostFacts, "survey": Survey}


def dump(facts: Facts | Survey | HostFacts) -> str:
    about = next(name for name, model in MODELS.items() if isinstance(facts, model))
    return (
        json.dumps({"batchyard_facts": FORMAT, "about": about, "facts": to_plain(facts)}, indent=2)
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
        version = quote(str(value["batchyard_facts"]))
        raise InputError(
            f"{name} is of format {version}; this version reads {FORMAT}",
            hint="use the version that wrote it",
        )
    about = value.get("about")
    if not isinstance(about, str) or about not in MODELS:
        raise InputError(
            f"{name}: about: expected one of {', '.join(MODELS)}, found {quote(str(about))}"
        )
    try:
        facts: Facts | Survey | HostFacts = _FactsReader().read(
            MODELS[about], value.get("facts"), f"{name}: facts"
        )
    except json_fields.JsonFieldError as exc:
        raise InputError(
            str(exc), hint="give a file that `--save` of this version of batchyard wrote"
        ) from None
    return facts


def to_plain(value: Any) -> Any:
    """Return facts as dicts and lists, without the fields that have their default."""
    if isinstance(value, Missing):
        return {"missing": value.reason} | ({"action": value.action} if value.action else {})
    if is_dataclass(value):
        parts = ((field, getattr(value, field.name)) for field in fields(value))
        return {field.name: to_plain(part) for field, part in parts if part != field.default}
    if isinstance(value, tuple):
        return [to_plain(part) for part in value]
    return value


class _FactsReader(json_fields.Reader):
    """Reads ``{"missing": reason}`` as ``Missing`` where a field may be missing."""

    def read_union(self, kinds: Sequence[Any], value: Any, place: str) -> Any:
        if Missing in kinds and isinstance(value, dict) and "missing" in value:
            return Missing(
                json_fields.read_field(value, "missing", str, place),
                json_fields.read_field(value, "action", str, place, default=""),
            )
        return super().read_union([kind for kind in kinds if kind is not Missing], value, place)
