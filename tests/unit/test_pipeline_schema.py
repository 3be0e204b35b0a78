"""The JSON schema for editors says what the reader says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from batchyard import pipeline
from batchyard.pipeline_file import file_keys

SCHEMA = json.loads((Path(pipeline.__file__).parent / "pipeline.schema.json").read_text())
DEFS = SCHEMA["$defs"]
STEP = DEFS["step"]["properties"]


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    ("properties", "keys"),
    [
        (SCHEMA["properties"], file_keys.FILE_KEYS),
        (STEP, file_keys.STEP_KEYS),
        (DEFS["defaults"]["properties"], file_keys.DEFAULT_KEYS),
        (DEFS["need"]["anyOf"][1]["properties"], file_keys.NEED_KEYS),
    ],
    ids=["file", "step", "defaults", "need"],
)
def test_it_knows_the_same_keys(properties: dict[str, Any], keys: dict[str, Any]) -> None:
    assert set(properties) == set(keys)


def test_it_has_the_same_limits() -> None:
    limits = {key: (STEP[key]["minimum"], STEP[key]["maximum"]) for key in file_keys.LIMITS}
    assert limits == file_keys.LIMITS
    assert STEP["name"]["maxLength"] == pipeline.MAX_STEP_NAME_LENGTH
    assert SCHEMA["properties"]["name"]["maxLength"] == pipeline.MAX_NAME_LENGTH
    assert tuple(DEFS["exit_rule"]["anyOf"][1]["enum"]) == pipeline.RETRY_WORDS


def test_every_key_is_described() -> None:
    described = {**SCHEMA["properties"], **STEP}
    assert [key for key, value in described.items() if not value.get("description")] == []


def test_its_own_examples_are_right() -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for key, value in STEP.items():
        for example in value.get("examples", []):
            work = {} if key in ("command", "commands", "commands_file") else {"command": "x"}
            step = {"name": "a", **work, key: example}
            validator.validate({"name": "p", "steps": [step]})
    for key, value in SCHEMA["properties"].items():
        for example in value.get("examples", []):
            validator.validate(
                {"name": "p", "steps": [{"name": "a", "command": "x"}], key: example}
            )
    for example in SCHEMA["examples"]:
        validator.validate(example)


@pytest.mark.parametrize(
    "text",
    [
        "{name: p}",
        "{name: P, steps: [{name: a, command: x}]}",
        "{name: p, steps: []}",
        "{name: p, steps: [{name: a}]}",
        "{name: p, steps: [{name: a, command: x, commands: [x]}]}",
        "{name: p, steps: [{name: a, command: x, array: 0}]}",
        "{name: p, steps: [{name: a, command: x, memory: 2 gigs}]}",
        "{name: p, steps: [{name: a, command: x, timeout: soon}]}",
        "{name: p, steps: [{name: a, command: x, retry_on: [0]}]}",
        "{name: p, steps: [{name: a, command: x, inputs: [/etc]}]}",
        "{name: p, steps: [{name: a, command: x, inputs: [a/../b]}]}",
        "{name: p, steps: [{name: a, command: x, env: {AWS_BATCH_X: 1}}]}",
        "{name: p, steps: [{name: a, command: x, secrets: {A: b}}]}",
        "{name: p, steps: [{name: a, command: x, comand: x}]}",
        "{name: p, defaults: {array: 3}, steps: [{name: a, command: x}]}",
    ],
)
def test_what_the_reader_refuses_it_refuses(text: str) -> None:
    assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(yaml.safe_load(text))
