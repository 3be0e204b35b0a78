"""`batchyard retry`."""

from __future__ import annotations

import click

from batchyard import launch, runs
from batchyard.cli.options import capacity_options, example, home_of, home_option, json_option, run_argument
from batchyard.cli.run import go


@click.command(epilog=example("batchyard retry last", "batchyard retry last --detach"))
@run_argument
@click.option("--detach", is_flag=True, help="Return at once and print the new run's id.")
@capacity_options
@home_option
@json_option
def command(run: str, detach: bool, cpus: int | None, memory: int | None, home: str | None, as_json: bool) -> int:
    """Start a new run of only what failed or never ran; what succeeded is not run again.

    The commands are those of the first run, also if their file has changed since; each child keeps its number.
    """
    record = launch.begin_retry(runs.load(home_of(home), run), cpus, memory)
    return go(record, detach=detach, as_json=as_json)
