"""Flags of `plan` beside --retry and --resume."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from batchyard.cli.plan import command
from batchyard.errors import InputError


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        (["--retry", "last", "-j", "8", "--only", "a"], "--only, -j: not with --retry"),
        (["--retry", "last", "--engine", "local"], "--engine: not with --retry"),
        (["--resume", "last", "--limit-cpus", "2"], "--limit-cpus: not with --resume"),
        (["--resume", "last", "--on-demand"], "--on-demand: not with --resume"),
    ],
)
def test_flags_that_need_a_file_are_refused(
    arguments: list[str], refused: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=f"^{refused}$"):
        invoke([*arguments, "--home", str(tmp_path)])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--retry", "last", "--limit-cpus", "2", "--limit-memory", "1GiB", "--workspace", "w"],
        ["--retry", "last", "--on-demand", "--reasons", "--json"],
        ["--resume", "last", "--commands", "--json"],
    ],
)
def test_flags_of_a_run_are_accepted(arguments: list[str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there are no runs"):
        invoke([*arguments, "--home", str(tmp_path)])


def invoke(arguments: list[str]) -> None:
    CliRunner().invoke(command, arguments, catch_exceptions=False)
