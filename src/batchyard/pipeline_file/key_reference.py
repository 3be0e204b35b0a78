"""The key reference of a page as Markdown tables, from the tables of keys."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from batchyard.pipeline_file.container_keys import MOUNT_KEYS
from batchyard.pipeline_file.cost_keys import SPOT_KEYS
from batchyard.pipeline_file.file_keys import FILE_KEYS, NEED_KEYS, STEP_KEYS
from batchyard.pipeline_file.value_types import Key

#: name in the page's comments -> keys of the table between them
TABLES = {
    "file": FILE_KEYS,
    "step": STEP_KEYS,
    "need": NEED_KEYS,
    "mount": MOUNT_KEYS,
    "spot": SPOT_KEYS,
}


def with_key_tables(page: str, tables: Mapping[str, Mapping[str, Key]] = TABLES) -> str:
    """Return the page with new tables between its ``<!-- keys: NAME -->`` comments."""
    for name, keys in tables.items():
        start, end = f"<!-- keys: {name} -->\n", f"<!-- end of keys: {name} -->"
        head, _, _ = page.partition(start)
        _, _, tail = page.partition(end)
        page = head + start + key_table(keys) + end + tail
    return page


def key_table(keys: Mapping[str, Key]) -> str:
    """Return a Markdown table with a row for each key."""
    rows = [
        f"| `{name}` | {key.type.name} | {_default(key)} | {_description(key)} |\n"
        for name, key in keys.items()
    ]
    return "| key | type | default | what it is |\n|---|---|---|---|\n" + "".join(rows)


def _default(key: Key) -> str:
    if key.is_required:
        return "required"
    if key.default is None:
        return key.absence
    if isinstance(key.default, list):
        return f"`[{', '.join(key.default)}]`"
    return f"`{key.default if isinstance(key.default, str) else json.dumps(key.default)}`"


def _description(key: Key) -> str:
    if not key.see:
        return key.description
    anchor = re.sub("[^a-z0-9_-]", "", key.see.lower().replace(" ", "-"))
    return f"{key.description} See [{key.see}](#{anchor})."
