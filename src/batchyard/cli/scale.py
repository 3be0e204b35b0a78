"""`batchyard scale`."""

from __future__ import annotations

import click

from batchyard import operations
from batchyard.cli.options import example, find_run, home_option, run_argument, run_env_option
from batchyard.units import pluralize


@click.command(epilog=example("batchyard scale last reconstruct 200"))
@run_argument
@click.argument("step")
@click.argument("children", type=int)
@run_env_option
@home_option
def command(run: str, step: str, children: int, env: str | None, home: str | None) -> int:
    """Change how many children work on a dynamic step, while the run goes on.

    RUN is an id, the beginning of an id, or `last`. With more CHILDREN, new ones start as soon as
    there is room; on AWS they are a further job of the step. With fewer, children end after the
    commands that they have.
    """
    record = find_run(home, run, env)
    scaled = operations.scale(record, step, children)
    room = "" if scaled.room >= children else f", and there is room for {scaled.room} at once"
    count = pluralize(children, "child", "children")
    click.echo(f"run {record.run_id}: {step} has {count} now{room}")
    return 0
