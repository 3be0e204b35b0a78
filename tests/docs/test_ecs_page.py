"""The sessions of docs/ecs.md run as shown, against an endpoint of `batchyard emulate`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from test_aws_page import AwsReader
from test_docs import DOCS, blocks_of, commands_of

from batchyard import environments
from batchyard.folder import environments_file

PAGE = DOCS / "ecs.md"


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
