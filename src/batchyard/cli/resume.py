"""`batchyard resume`."""

from __future__ import annotations

import click

from batchyard import runs
from batchyard.cli.options import example, home_of, home_option, json_option, run_argument
from batchyard.cli.run import go
from batchyard.engines.base import RunState
from batchyard.errors import BadInput, RunIsHeld


@click.command(epilog=example("batchyard resume last", "batchyard resume last --detach"))
@run_argument
@click.option("--detach", is_flag=True, help="Return at once and print the run's id.")
@home_option
@json_option
def command(run: str, detach: bool, home: str | None, as_json: bool) -> int:
    """Go on with a run whose process died: what succeeded is not run again, what it left running is ended first."""
    record = runs.load(home_of(home), run)
    engine = record.open_engine()
    try:
        state, holder = engine.run_state, engine.holder
    finally:
        engine.close()
    if holder is not None:
        raise RunIsHeld(f"run {record.run_id} is being executed by {holder}", hint="there is nothing to resume")
    if state is not RunState.RUNNING:
        hint = "" if state is RunState.SUCCEEDED else f"`batchyard retry {record.run_id}` runs what is left"
        raise BadInput(f"run {record.run_id} is over: {state.value}", hint=hint)
    return go(record, detach=detach, as_json=as_json)
