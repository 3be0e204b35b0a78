"""Every command of a group (`batchyard image push`) has its heading in docs/commands.md, and every flag is under it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from test_docs import DOCS, ROOT, every_command, section_of

import batchyard.cli

PAGE = DOCS / "commands.md"


def inner_commands() -> Iterator[tuple[str, click.Command]]:
    for name, command in every_command():
        if isinstance(command, click.Group):
            for inner, found in sorted(command.commands.items()):
                if not found.hidden:
                    yield f"{name} {inner}", found


INNER = dict(inner_commands())


@pytest.mark.parametrize("name", INNER)
def test_every_flag_is_in_the_reference(name: str) -> None:
    section = section_of(PAGE, f"batchyard {name}")
    flags = [
        flag
        for option in INNER[name].params
        if isinstance(option, click.Option)
        for flag in option.opts
    ]
    assert not [
        flag for flag in flags if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", section)
    ]


def test_no_command_is_in_the_reference_that_is_not_in_the_program() -> None:
    headings = re.findall(r"(?m)^##+ batchyard (.*)$", PAGE.read_text(encoding="utf-8"))
    assert set(headings) - modules() <= {name for name, _ in every_command()} | INNER.keys()
    assert len(set(headings)) == len(headings)


def modules() -> set[str]:
    """Commands are modules of that folder."""
    return {path.stem for path in Path(batchyard.cli.__file__).parent.glob("*.py")}


def test_every_command_is_in_the_table() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("\n## ")[0]
    assert not [name for name, _ in every_command() if f"](#batchyard-{name})" not in table]


def test_the_readme_names_every_command_and_no_other() -> None:
    section = section_of(ROOT / "README.md", "All commands")
    cells = [line.split("|")[2] for line in section.splitlines() if line.startswith("| ")]
    named = {name for cell in cells for name in re.findall(r"`([a-z]+(?: [a-z]+)?)`", cell)}
    plain = {name for name, command in every_command() if not isinstance(command, click.Group)}
    # `emulate` is a command by itself too
    assert named == plain | INNER.keys() | {"emulate"}
