"""`batchyard status`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from batchyard import status
from batchyard.cli import render
from batchyard.cli.following import LiveSteps, follow
from batchyard.cli.options import (
    env_option,
    example,
    find_run,
    home_flag,
    home_option,
    json_option,
    print_json,
    run_argument,
)
from batchyard.cli.run import EXIT_CODES
from batchyard.engines.base import RunState
from batchyard.errors import BatchyardError
from batchyard.runs import Record
from batchyard.status import RunStatus

_WATCH_EVERY_S = 0.5


@click.command(
    epilog=example(
        "batchyard status last", "batchyard status last --watch", "batchyard status last --json"
    )
)
@run_argument
@click.option("--watch", is_flag=True, help="Follow the run to its end, and exit as it does.")
@env_option
@home_option
@json_option
def command(run: str, watch: bool, env: str | None, home: str | None, as_json: bool) -> int:
    """Show a run's steps: state, children, attempts; and its first failures with the end of their output.

    RUN is an id, the beginning of one, or `last`. Exits 0 also for a failed run, unless with --watch.
    """
    record = find_run(home, run, env)
    if not watch:
        shown = _looked_at(record)
    else:
        shown = (
            _watched(record, quiet=as_json) if record.is_local else follow(record, quiet=as_json)
        )
    if as_json:
        print_json(status.to_json(shown))
    else:
        click.echo(
            "\n".join(
                render.status_lines(shown, int(time.time() * 1000), home_flag(record, Path.cwd()))
            )
        )
    if not watch:
        return 0
    return 3 if shown.is_interrupted else EXIT_CODES[shown.state]


def _looked_at(record: Record) -> RunStatus:
    """With its failures; where AWS does not answer, what is kept here of a run that is over."""
    if record.is_local:
        return status.of_run(record)
    engine = record.open_aws()
    try:
        shown = status.of_engine(record, engine)
    except BatchyardError as exc:
        if not engine.is_known_to_be_over:
            raise
        click.echo(f"only what is kept here: {exc.message}", err=True)
        return status.of_run(record, max_failures=0)
    if engine.source:
        click.echo(engine.source, err=True)
    return shown


def _watched(record: Record, *, quiet: bool) -> RunStatus:
    """The status at the run's end, or once it turns out that nobody executes it."""
    show = LiveSteps() if sys.stderr.isatty() and not quiet else None
    try:
        while True:
            shown = status.of_run(record, max_failures=0)
            if shown.state is not RunState.RUNNING or shown.is_interrupted:
                return status.of_run(record)
            if show is not None:
                show.update(shown)
            time.sleep(_WATCH_EVERY_S)
    finally:
        if show is not None:
            show.close()
