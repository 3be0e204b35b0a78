"""The JSON schema of a pipeline file, made from the tables of keys, for editors."""

from __future__ import annotations

import json
from typing import Any

from batchyard.pipeline_file.file_keys import DEFAULT_KEYS, FILE_KEYS, STEP_KEYS, WORK_KEYS
from batchyard.pipeline_file.value_types import mapping_schema


def schema_text() -> str:
    """Return the content of ``pipeline.schema.json``."""
    return json.dumps(pipeline_schema(), indent=2) + "\n"


def pipeline_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a pipeline file.

    It has keys, types and limits. Rules between steps, such as cycles, are only in the reader.
    """
    work = [{"required": [key]} for key in WORK_KEYS]
    defaults = {name: {"$ref": f"#/$defs/step/properties/{name}"} for name in DEFAULT_KEYS}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "batchyard pipeline",
        "description": "A pipeline of steps that batchyard runs on this machine or on AWS Batch.",
        **mapping_schema(FILE_KEYS),
        "examples": [{"name": "hello", "steps": [{"name": "greet", "command": "echo hello"}]}],
        "$defs": {
            "step": {**mapping_schema(STEP_KEYS), "oneOf": work},
            "defaults": {
                "type": "object",
                "additionalProperties": False,
                "properties": defaults,
            },
        },
    }
