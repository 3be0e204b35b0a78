"""`batchyard validate`."""

from __future__ import annotations

from pathlib import Path

import click

from batchyard.cli.options import example, pairs
from batchyard.cli.pipelines import show_warnings
from batchyard.errors import InputError
from batchyard.pipeline_file import reading
from batchyard.units import pluralize


@click.command(
    epilog=example("batchyard validate pipeline.yaml", "batchyard validate commands.txt")
)
@click.argument("file", type=click.Path())
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Override one of the file's params.",
)
def command(file: str, settings: tuple[str, ...]) -> int:
    """Show every mistake in a pipeline file at once, as file:line:column: what; what to write instead.

    Exit codes: 0 the file is right (there may be warnings), 2 it has mistakes.
    """
    path = Path(file)
    if reading.is_command_list(path):
        if settings:
            raise InputError(
                f"--set goes with a pipeline; {file} is a list of commands",
                hint="a list has no params",
            )
        pipeline = reading.load_list(path)
    else:
        pipeline = reading.load(path, pairs(settings))
    show_warnings(pipeline)
    children = sum(step.size for step in pipeline.steps)
    click.echo(
        f"{file}: right: {pluralize(len(pipeline.steps), 'step')}, {pluralize(children, 'child', 'children')}"
    )
    return 0
