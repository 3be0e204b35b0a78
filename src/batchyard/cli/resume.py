"""`batchyard resume`."""

from __future__ import annotations

from dataclasses import replace

import click

from batchyard import launch, runs
from batchyard.cli.options import capacity_options, example, home_of, home_option, json_option, run_argument
from batchyard.cli.run import go
from batchyard.errors import BadInput


@click.command(epilog=example("batchyard resume last", "batchyard resume last --detach"))
@run_argument
@click.option("--detach", is_flag=True, help="Return at once and print the run's id.")
@capacity_options
@home_option
@json_option
def command(run: str, detach: bool, cpus: int | None, memory: int | None, home: str | None, as_json: bool) -> int:
    """Go on with a run whose process died: what succeeded is not run again, what it left running is ended first."""
    record = runs.load(home_of(home), run)
    launch.require_resumable(record)
    setting = launch.with_capacity(record.setting, record.plan, cpus, memory)
    if detach and setting != record.setting:
        raise BadInput("--cpus and --memory go with a resume in the foreground", hint="leave --detach out")
    return go(replace(record, setting=setting), detach=detach, as_json=as_json)
