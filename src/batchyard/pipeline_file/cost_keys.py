"""Keys about what a run costs: on which market its children run, and the most that it may cost."""

from __future__ import annotations

import re

from batchyard import units
from batchyard.batch.limits import MAX_ATTEMPTS
from batchyard.pipeline import MAX_COST_USD, SpotRule
from batchyard.pipeline_file.mistakes import Mistakes
from batchyard.pipeline_file.value_types import (
    Key,
    ValueType,
    check_amount,
    check_mapping,
    check_text,
    mapping_schema,
)
from batchyard.units import quote
from batchyard.yaml_positions import Mapping, Node

_EXAMPLE = "{fallback_after: 2}"
_FALLBACK = f"a number of reclaims from 1 to {MAX_ATTEMPTS}, or a time without a start, like 15m"
_USD = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
_COST = f"US dollars, above 0 and at most {MAX_COST_USD:,}, like 20 or 2.50"


def parse_usd(text: str) -> float | None:
    """Return an amount of US dollars above 0; None if the text is none."""
    if not _USD.fullmatch(text):
        return None
    usd = float(text)
    return usd if 0 < usd <= MAX_COST_USD else None


def _check_fallback(node: Node, label: str, mistakes: Mistakes) -> SpotRule | None:
    text = check_text(node, label, mistakes, _FALLBACK)
    if text is None:
        return None
    if text.isascii() and text.isdecimal():
        if len(text) <= len(str(MAX_ATTEMPTS)) and 1 <= int(text) <= MAX_ATTEMPTS:
            return SpotRule(reclaims=int(text))
        mistakes.add(node, f"{label} is {quote(text)}", f"write {_FALLBACK}")
        return None
    wait_s = check_amount(node, label, mistakes, units.parse_duration)
    return None if wait_s is None else SpotRule(wait_s=wait_s)


def _check_spot(node: Node, label: str, mistakes: Mistakes) -> SpotRule | None:
    values = check_mapping(SPOT_KEYS, node, label, mistakes, _EXAMPLE)
    if values is None or not isinstance(node, Mapping):
        return None
    if not node.entries:
        mistakes.add(node, f"{label} has no fallback_after", f"write {_EXAMPLE}")
    rule: SpotRule | None = values.get("fallback_after")
    return rule


def _check_cost(node: Node, label: str, mistakes: Mistakes) -> float | None:
    text = check_text(node, label, mistakes, _COST)
    if text is None:
        return None
    usd = parse_usd(text)
    if usd is None:
        mistakes.add(node, f"{label} is {quote(text)}", f"write {_COST}")
    return usd


SPOT_KEYS = {
    "fallback_after": Key(
        ValueType(
            _check_fallback,
            {
                "anyOf": [
                    {"type": "integer", "minimum": 1, "maximum": MAX_ATTEMPTS},
                    {"type": "string", "pattern": rf"^\s*(?=[0-9]){units.DURATION_PATTERN}\s*$"},
                ]
            },
            "number or time",
        ),
        "Reclaims of a child, or time in which no child of a step starts, after which the children"
        " go on, on demand.",
        is_required=True,
        examples=(2, "15m"),
    ),
}
SPOT = ValueType(_check_spot, mapping_schema(SPOT_KEYS), "mapping")
COST = ValueType(
    _check_cost,
    {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_COST_USD},
    "US dollars",
)
