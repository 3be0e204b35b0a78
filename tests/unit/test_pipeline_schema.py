"""The JSON schema and the docs' key reference come from the reader's tables."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

import batchyard
from batchyard import pipeline
from batchyard.pipeline import Pipeline, Step
from batchyard.pipeline_file import (
    container_keys,
    file_keys,
    key_limits,
    key_reference,
    reading,
    schema,
)
from batchyard.pipeline_file.mistakes import Mistakes
from batchyard.pipeline_file.yaml_parsing import parse

PAGE = Path(__file__).parents[2] / "docs" / "pipeline-file.md"
GENERATOR = "run: python docs/generate_pipeline_reference.py"
SCHEMA = schema.pipeline_schema()
STEP = SCHEMA["$defs"]["step"]["properties"]


def test_the_package_has_the_generated_schema() -> None:
    path = Path(batchyard.__file__).with_name("pipeline.schema.json")
    assert path.read_text(encoding="utf-8") == schema.schema_text(), GENERATOR


def test_the_docs_have_the_generated_key_tables() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == key_reference.with_key_tables(text), GENERATOR
    for keys in key_reference.TABLES.values():
        assert key_reference.key_table(keys) in text


def test_every_link_of_a_key_leads_to_a_heading() -> None:
    headings = [line.lstrip("# ") for line in PAGE.read_text().splitlines() if line[:1] == "#"]
    keys = [key for table in key_reference.TABLES.values() for key in table.values()]
    assert {key.see for key in keys if key.see} <= set(headings)


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_it_has_the_same_limits() -> None:
    limits = {key: (STEP[key]["minimum"], STEP[key]["maximum"]) for key in key_limits.LIMITS}
    assert limits == key_limits.LIMITS
    assert STEP["name"]["maxLength"] == pipeline.MAX_STEP_NAME_LENGTH
    assert SCHEMA["properties"]["name"]["maxLength"] == pipeline.MAX_NAME_LENGTH
    assert tuple(STEP["retry_on"]["items"]["anyOf"][1]["enum"]) == pipeline.RETRY_WORDS


def test_every_key_is_described() -> None:
    described = {**SCHEMA["properties"], **STEP}
    assert [key for key, value in described.items() if not value.get("description")] == []


@pytest.mark.parametrize(
    ("keys", "model"),
    [
        (file_keys.STEP_KEYS, Step("a", command="x")),
        (file_keys.FILE_KEYS, Pipeline("p", ())),
        (file_keys.NEED_KEYS, pipeline.Need("a")),
        (container_keys.MOUNT_KEYS, pipeline.Mount("/a")),
    ],
    ids=["step", "file", "need", "mount"],
)
def test_defaults_are_those_of_the_model(keys: dict[str, file_keys.Key], model: object) -> None:
    for name, key in keys.items():
        if key.default is None:
            continue
        mistakes = Mistakes("a file")
        node = parse(yaml.safe_dump(key.default), mistakes)
        assert node is not None
        assert key.type.check(node, name, mistakes) == getattr(model, key.field or name)
        assert mistakes.count == 0


def test_its_own_examples_are_right(tmp_path: Path) -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    files = list(SCHEMA["examples"])
    for key, value in STEP.items():
        for example in value.get("examples", []):
            work: dict[str, object] = {} if key in file_keys.WORK_KEYS else {"command": "x"}
            if key in ("share_out", "weight"):
                work = {"commands": ["x --frames 9"] * 3, "share_out": "dynamic"}
            files.append({"name": "p", "steps": [{"name": "a", **work, key: example}]})
    for key, value in SCHEMA["properties"].items():
        for example in value.get("examples", []):
            files.append({"name": "p", "steps": [{"name": "a", "command": "x"}], key: example})
    (tmp_path / "reconstruct.txt").write_text("echo 1\n")
    for file in files:
        validator.validate(file)
        for step in file["steps"]:
            if "needs" in step:
                file["steps"] = [*file["steps"], {"name": "preprocess", "command": "x"}]
        path = tmp_path / "pipeline.yaml"
        path.write_text(yaml.safe_dump(file))
        reading.load(path)


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
