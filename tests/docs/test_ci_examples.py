"""The CI files of docs/ci.md are valid, contain no access key, and use existing commands.

The program's parser reads each command; no command is executed.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import click
import pytest
import yaml
from test_docs import DOCS, Block, blocks_of

from batchyard.cli.main import cli

PAGE = DOCS / "ci.md"
EXAMPLES = [block for block in blocks_of(PAGE) if block.language == "yaml"]
GITHUB = [block for block in EXAMPLES if block.file.startswith("github")]
CIRCLECI = [block for block in EXAMPLES if block.file.startswith("circleci")]
POLICIES = [block for block in blocks_of(PAGE) if block.language == "json"]


def loaded(block: Block) -> dict[str, Any]:
    # BaseLoader: every scalar is text, so that the key `on` is not read as true.
    document = yaml.load(block.text, Loader=yaml.BaseLoader)
    assert isinstance(document, dict)
    return document


def scripts_of(block: Block) -> list[str]:
    """What the steps of all jobs run."""
    found = []
    for job in loaded(block)["jobs"].values():
        for step in job["steps"]:
            script = step.get("run") if isinstance(step, dict) else None
            if isinstance(script, dict):
                script = script["command"]
            if script:
                found.append(script)
    return found


def commands_in(script: str) -> Iterator[list[str]]:
    """The words of each `batchyard` command, also of one that stands in `$(...)`."""
    for line in script.splitlines():
        for match in re.finditer(r"(?:^|\$\()\s*(batchyard [^)|>;&]*)", line):
            yield shlex.split(match[1])


def accept(words: list[str]) -> click.Context:
    """Raises click.UsageError where the program would."""
    command: click.Command = cli
    ctx = click.Context(cli, info_name="batchyard")
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        inner = command.get_command(ctx, name)
        if inner is None:
            raise click.UsageError(f"no command {name!r}")
        command = inner
    return command.make_context(" ".join(words[:2]), rest, parent=ctx)


COMMANDS = [
    (block.file, words)
    for block in EXAMPLES
    for script in scripts_of(block)
    for words in commands_in(script)
]


@pytest.mark.parametrize(
    ("file", "words"), COMMANDS, ids=lambda value: value if isinstance(value, str) else None
)
def test_a_command_is_one_that_the_program_takes(file: str, words: list[str]) -> None:
    accept(words)


def test_each_service_builds_pushes_and_runs() -> None:
    for file in ("github-actions.yaml", "circleci.yaml"):
        begun = [" ".join(words[1:3]) for name, words in COMMANDS if name == file]
        assert [one for one in begun if one.startswith(("image", "run"))] == [
            "image build",
            "image push",
            "run pipeline.yaml",
        ]


def test_no_command_is_overlooked() -> None:
    shown = sum(
        len(re.findall(r"\bbatchyard (?=[a-z])", script))
        for b in EXAMPLES
        for script in scripts_of(b)
    )
    assert shown == len(COMMANDS) > 10


@pytest.mark.parametrize(
    "wrong", ["run p.yaml --no-such-flag", "image biuld . --tag a", "run", "image push"]
)
def test_a_wrong_command_is_found(wrong: str) -> None:
    with pytest.raises(click.UsageError):
        accept(["batchyard", *wrong.split()])


@pytest.mark.parametrize("block", GITHUB, ids=str)
def test_a_github_workflow_has_what_it_needs(block: Block) -> None:
    workflow = loaded(block)
    assert workflow.keys() <= {"on", "permissions", "concurrency", "jobs", "env"} and workflow["on"]
    for job in workflow["jobs"].values():
        assert job["runs-on"] == "ubuntu-latest"
        steps = job["steps"]
        assert all(("run" in step) != ("uses" in step) for step in steps)
        takes_role = [step for step in steps if "configure-aws-credentials" in step.get("uses", "")]
        assert all(step["with"].keys() == {"role-to-assume", "aws-region"} for step in takes_role)
        assert bool(takes_role) == ("--env" in block.text)
        if takes_role:
            assert workflow["permissions"] == {"id-token": "write", "contents": "read"}


@pytest.mark.parametrize("block", CIRCLECI, ids=str)
def test_a_circleci_configuration_has_what_it_needs(block: Block) -> None:
    config = loaded(block)
    assert config["version"] == "2.1"
    for workflow in config["workflows"].values():
        for entry in workflow["jobs"]:
            assert set(entry) <= config["jobs"].keys()
    for job in config["jobs"].values():
        assert {"AWS_REGION", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"} == job[
            "environment"
        ].keys()
        assert any("$CIRCLE_OIDC_TOKEN_V2" in script for script in scripts_of(block))


def test_there_are_examples_for_both() -> None:
    assert GITHUB and CIRCLECI and len(GITHUB) + len(CIRCLECI) == len(EXAMPLES)


def test_no_key_is_stored() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert not re.search(r"(?i)secrets\.|access_key|access-key|\bAKIA", text)


@pytest.mark.parametrize("block", POLICIES, ids=str)
def test_a_trust_policy_names_who_and_where(block: Block) -> None:
    (statement,) = json.loads(block.text)["Statement"]
    provider = statement["Principal"]["Federated"].partition("oidc-provider/")[2]
    conditions = {
        key: value for test in statement["Condition"].values() for key, value in test.items()
    }
    assert conditions.keys() == {f"{provider}:aud", f"{provider}:sub"}
    assert statement["Action"] == "sts:AssumeRoleWithWebIdentity"
    assert not conditions[f"{provider}:sub"].startswith("*")
