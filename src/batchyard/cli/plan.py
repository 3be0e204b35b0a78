"""`batchyard plan`."""

from __future__ import annotations

from typing import Any

import click

from batchyard import engines, launch
from batchyard import plan as planning
from batchyard.cli import pipelines, render
from batchyard.cli.options import example, json_option, print_json
from batchyard.errors import BatchyardError


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
    """Show what `run` would do, without doing it: steps, children, commands, resources, order."""
    chosen = pipelines.chosen(file, flags)
    pipelines.show_warnings(chosen.pipeline)
    plan = planning.make(chosen.pipeline, only=flags["only"], start_from=flags["start_from"])
    try:
        plan, _, notes = launch.fit(plan, chosen.pipeline, chosen.offer)
    except BatchyardError as exc:
        # A plan is worth seeing also where this machine is not the one to run it.
        notes = [exc.message, *([exc.hint] if exc.hint else [])]
    if as_json:
        print_json(planning.describe(plan, engines.DEFAULT))
    else:
        click.echo("\n".join(render.plan_lines(plan)))
    for note in notes:
        click.echo(f"note: {note}", err=True)
    return 0
