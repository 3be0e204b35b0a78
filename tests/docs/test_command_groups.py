"""Commands in groups: `--help` and the README have the same, and every flag is explained.

Every inner command (`batchyard image push`) has its heading in docs/commands.md, with its flags.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from test_docs import DOCS, ROOT, every_command, section_of

import batchyard.cli
from batchyard.cli.main import COMMAND_GROUPS, cli

PAGE = DOCS / "commands.md"


def inner_commands() -> Iterator[tuple[str, click.Command]]:
    for name, command in every_command():
        if isinstance(command, click.Group):
            for inner_name, inner_command in sorted(command.commands.items()):
                if not inner_command.hidden:
                    yield f"{name} {inner_name}", inner_command


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


def test_a_command_with_a_region_has_a_profile() -> None:
    for name, command in [*every_command(), *INNER.items()]:
        flags = {flag for option in command.params for flag in option.opts}
        # The region of `emulate` is that of its own endpoint.
        assert name == "emulate" or ("--region" in flags) == ("--profile" in flags), name


def test_no_command_is_in_the_reference_that_is_not_in_the_program() -> None:
    headings = re.findall(r"(?m)^##+ batchyard (.*)$", PAGE.read_text(encoding="utf-8"))
    assert set(headings) - modules() <= {name for name, _ in every_command()} | INNER.keys()
    assert len(set(headings)) == len(headings)


def modules() -> set[str]:
    """Commands are modules of that folder."""
    return {path.stem for path in Path(batchyard.cli.__file__).parent.glob("*.py")}


def test_the_table_of_commands_is_that_of_help() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("\n## ")[0]
    rows = re.findall(r"(?m)^\| .*\]\(#batchyard-([a-z]+)\) \| (.*) \|$", table)
    assert rows == [row for group in COMMAND_GROUPS.values() for row in group.items()]


def readme_groups() -> dict[str, list[str]]:
    """Heading -> commands (`init`, `image push`), from the README's table."""
    section = section_of(ROOT / "README.md", "All commands")
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| ")]
    return {row[1].strip(): re.findall(r"`([a-z]+(?: [a-z]+)?)`", row[2]) for row in rows[1:]}


def test_the_readme_names_every_command_and_no_other() -> None:
    names = {name for group in readme_groups().values() for name in group}
    plain = {name for name, command in every_command() if not isinstance(command, click.Group)}
    # `emulate` is a command by itself too
    assert names == plain | INNER.keys() | {"emulate"}


def test_help_groups_the_commands_as_the_readme_does() -> None:
    readme = {
        heading: list(dict.fromkeys(name.split()[0] for name in names))
        for heading, names in readme_groups().items()
    }
    assert {heading: list(group) for heading, group in COMMAND_GROUPS.items()} == readme
    assert list(COMMAND_GROUPS) == list(readme)


def test_help_fits_a_terminal_of_80_columns() -> None:
    lines = cli.get_help(click.Context(cli, info_name="batchyard", terminal_width=80)).splitlines()
    assert max(map(len, lines)) < 80
    for group in COMMAND_GROUPS.values():
        for name, summary in group.items():
            # on one line, and in the same column for all groups
            assert f"  {name:12}  {summary}" in lines


@pytest.mark.parametrize("name", [name for name, _ in every_command()] + list(INNER))
def test_no_option_is_explained_by_another(name: str) -> None:
    command = INNER.get(name) or dict(every_command())[name]
    options = [option for option in command.params if isinstance(option, click.Option)]
    texts = {option.opts[0]: option.help or "" for option in options if not option.hidden}
    assert [flag for flag, text in texts.items() if not text] == []
    assert [text for text in texts.values() if re.search(r"(?i)the same|\bas for\b", text)] == []


def test_the_how_to_page_shows_a_command_as_it_is() -> None:
    page = (DOCS / "how-to" / "add-a-command.md").read_text(encoding="utf-8")
    module = ROOT / "src" / "batchyard" / "cli" / "fetch.py"
    assert module.read_text(encoding="utf-8") in page
