"""`batchyard plan`."""

from __future__ import annotations

from typing import Any

import click

from batchyard import engines, operations
from batchyard import plan as planning
from batchyard.cli import pipelines, render
from batchyard.cli.options import example, home_option_for, json_option, print_json
from batchyard.engines.base import RunRequest
from batchyard.folder import home_beside


@click.command(
    epilog=example(
        "batchyard plan pipeline.yaml",
        "batchyard plan commands.txt -j 8",
        "batchyard plan pipeline.yaml --engine aws --env lab",
    )
)
@click.argument("file", type=click.Path())
@pipelines.engine_flags
@pipelines.pipeline_flags
@home_option_for(
    "The .batchyard folder with the environments (default: $BATCHYARD_HOME, or the one beside"
    " FILE)."
)
@json_option
def command(
    file: str,
    engine: str,
    env: str | None,
    on_demand: bool,
    home: str | None,
    as_json: bool,
    **flags: Any,
) -> int:
    """Show what `run` would do, without running anything.

    FILE is a pipeline (.yaml, .yml or .json), or a plain list: any other file, a pipe, or `-`, with
    one shell command a line. Prints the steps with their children, commands and resources, in
    order. With `--engine aws`, also prints the requests that `run` would send to AWS Batch; none is
    sent.
    """
    source = pipelines.load_source(file, flags)
    pipelines.print_source_notes(source)
    request = RunRequest(
        plan=planning.make(source.pipeline, only=flags["only"], start_from=flags["start_from"]),
        pipeline=source.pipeline,
        home=home_beside(source.pipeline.folder, home),
        offer=source.offer,
        environment=env,
        on_demand=on_demand,
    )
    preview = operations.preview(engines.load(engine), request)
    if as_json:
        print_json(preview.to_json(engine))
    else:
        lines = [
            *render.plan_lines(preview.plan),
            *render.expectation_lines(preview.expectations),
            *render.request_lines(preview.requests),
        ]
        click.echo("\n".join(lines))
    for note in preview.notes:
        click.echo(f"note: {note}", err=True)
    return 0
