"""`batchyard validate`."""

from __future__ import annotations

from pathlib import Path

import click

from batchyard.cli.options import example, pairs
from batchyard.cli.pipelines import load_list, print_warnings, refuse_settings, set_option
from batchyard.pipeline_file import plain_lists, reading
from batchyard.units import pluralize


@click.command(
    epilog=example("batchyard validate pipeline.yaml", "batchyard validate commands.txt")
)
@click.argument("file", type=click.Path())
@set_option
def command(file: str, settings: tuple[str, ...]) -> int:
    """Show all mistakes in a pipeline file, as file:line:column: problem; what to write instead.

    Exit codes: 0 the file is valid (it may have warnings), 2 it has mistakes.
    """
    path = Path(file)
    if plain_lists.is_command_list(path):
        refuse_settings(file, settings)
        pipeline = load_list(file, {})
    else:
        pipeline = reading.load(path, pairs(settings))
    print_warnings(pipeline)
    children = sum(step.size for step in pipeline.steps)
    steps = pluralize(len(pipeline.steps), "step")
    click.echo(f"{file}: valid: {steps}, {pluralize(children, 'child', 'children')}")
    return 0
