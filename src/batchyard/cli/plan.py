"""`batchyard plan`."""

from __future__ import annotations

from typing import Any

import click

from batchyard import engines, operations
from batchyard import plan as planning
from batchyard.cli import pipelines, render
from batchyard.cli.options import example, json_option, print_json
from batchyard.engines.base import RunRequest
from batchyard.folder import home_beside


@click.command(
    epilog=example(
        "batchyard plan pipeline.yaml",
        "batchyard plan commands.txt --array 8",
        "batchyard plan p.yaml --json",
    )
)
@click.argument("file", type=click.Path())
@pipelines.pipeline_flags
@json_option
def command(file: str, as_json: bool, **flags: Any) -> int:
    """Show what `run` would do, without running anything.

    FILE is a pipeline (.yaml, .yml or .json), or a plain list: any other file, with one shell
    command a line. Prints the steps with their children, commands and resources, in order.
    """
    source = pipelines.load_source(file, flags)
    pipelines.print_warnings(source.pipeline)
    request = RunRequest(
        plan=planning.make(source.pipeline, only=flags["only"], start_from=flags["start_from"]),
        pipeline=source.pipeline,
        home=home_beside(source.pipeline.folder, None),
        offer=source.offer,
    )
    plan, notes = operations.preview(engines.load(engines.DEFAULT), request)
    if as_json:
        print_json(planning.describe(plan, engines.DEFAULT))
    else:
        click.echo("\n".join(render.plan_lines(plan)))
    for note in notes:
        click.echo(f"note: {note}", err=True)
    return 0
