"""The sessions of docs/aws-batch.md run as shown, against an endpoint of `batchyard emulate`.

The sessions are the blocks ```shell-session of the page, in the form that test_docs describes. The
endpoint is started in the page's folder before the first session, as the page asks its reader to
do. All sessions have the environment variables that the endpoint prints.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from test_docs import DOCS, Block, Reader, blocks_of, commands_of, rows_of, section_of

from batchyard import environments
from batchyard.folder import environments_file

PAGE = DOCS / "aws-batch.md"
VARIABLES = 5


class AwsReader(Reader):
    """Somebody with two terminals, the AWS CLI, and the worker where an image would have it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for name, module in (("aws", "awscli"), ("batchyard-worker", "batchyard.worker")):
            path = folder / "bin" / name
            path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
            path.chmod(0o755)
        # Nobody's own account, whatever happens.
        nowhere = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
        self._environ = {**self._environ, **nowhere, "AWS_EC2_METADATA_DISABLED": "true"}

    @contextmanager
    def endpoint(self) -> Iterator[None]:
        command = ["batchyard", "emulate", "--port", "0"]
        with (self.folder.parent / "endpoint.log").open("wb") as log:
            server = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=self.folder,
                env=self._environ,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert server.stdout
        try:
            for _ in range(VARIABLES):
                name, _, value = shlex.split(server.stdout.readline().decode())[1].partition("=")
                self._environ[name] = value
            yield
        finally:
            server.send_signal(signal.SIGTERM)
            server.stdout.close()
            server.wait(timeout=300)


@pytest.mark.slow
def test_the_walk_happens_as_shown(tmp_path: Path) -> None:
    reader = AwsReader(tmp_path)
    with reader.endpoint():
        for block in blocks_of(PAGE):
            if block.file:
                path = reader.folder / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
            if block.language == "shell-session":
                for command in commands_of(block):
                    reader.does(command, PAGE)


def test_the_walk_is_there() -> None:
    commands = [command.text for block in sessions() for command in commands_of(block)]
    for wanted in ("run", "status", "logs", "retry", "stop", "resume", "fetch", "runs", "submit"):
        assert any(f"batchyard {wanted}" in text for text in commands), wanted


def sessions() -> list[Block]:
    return [block for block in blocks_of(PAGE) if block.language == "shell-session"]


def test_every_key_of_an_environment_is_in_the_reference() -> None:
    known = {field.name for field in fields(environments.Environment)} - {"name"}
    section = section_of(PAGE, "The environment")
    assert known | {f"queues.{kind}" for kind in environments.QUEUES} == {
        key for key in rows_of(PAGE) if f"\n| `{key}` |" in section
    }


def test_the_environments_that_the_page_shows_are_right(tmp_path: Path) -> None:
    shown = [
        block
        for block in blocks_of(PAGE)
        if block.language == "yaml" and block.text.startswith("environments:")
    ]
    assert len(shown) >= 2
    for block in shown:
        path = environments_file(tmp_path)
        path.write_text(block.text, encoding="utf-8")
        assert environments.read(path).keys() == yaml.safe_load(block.text)["environments"].keys()


def test_every_output_that_an_environment_is_read_from_is_in_the_reference() -> None:
    section = section_of(PAGE, "The environment")
    outputs = [*environments._OUTPUTS, *environments._QUEUE_OUTPUTS]
    assert not [name for name in outputs if f"`{name}`" not in section]
