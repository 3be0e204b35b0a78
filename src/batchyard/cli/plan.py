"""`batchyard plan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from batchyard import engines
from batchyard import plan as planning
from batchyard.cli import pipelines, render
from batchyard.cli.options import example, json_option, print_json
from batchyard.engines.base import RunRequest
from batchyard.errors import BatchyardError
from batchyard.folder import home_beside
from batchyard.plan import Plan


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

    Prints the steps with their children, commands and resources, in order.
    """
    source = pipelines.load_source(file, flags)
    pipelines.print_warnings(source.pipeline)
    plan = planning.make(source.pipeline, only=flags["only"], start_from=flags["start_from"])
    plan, notes = _fit(plan, source)
    if as_json:
        print_json(planning.describe(plan, engines.DEFAULT))
    else:
        click.echo("\n".join(render.plan_lines(plan)))
    for note in notes:
        click.echo(f"note: {note}", err=True)
    return 0


def _fit(plan: Plan, source: pipelines.Source) -> tuple[Plan, Sequence[str]]:
    """Return the plan as this machine would run it, and notes for the user."""
    request = RunRequest(
        plan=plan,
        pipeline=source.pipeline,
        home=home_beside(source.pipeline.folder, None),
        offer=source.offer,
    )
    try:
        prepared = engines.load(engines.DEFAULT).prepare(request)
    except BatchyardError as exc:
        # The plan is still of use: another machine may run the pipeline.
        return plan, [exc.message, *([exc.hint] if exc.hint else [])]
    return prepared.plan, prepared.notes
