"""`batchyard status`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from batchyard import runs, status
from batchyard.cli import render
from batchyard.cli.options import example, home_flag, home_of, home_option, json_option, print_json, run_argument
from batchyard.cli.run import EXIT_CODES
from batchyard.engines.base import RunState
from batchyard.runs import Record
from batchyard.status import RunStatus

_WATCH_EVERY_S = 0.5


@click.command(epilog=example("batchyard status last", "batchyard status last --watch", "batchyard status last --json"))
@run_argument
@click.option("--watch", is_flag=True, help="Follow the run to its end, and exit as it does.")
@home_option
@json_option
def command(run: str, watch: bool, home: str | None, as_json: bool) -> int:
    """Show a run's steps: state, children, attempts; and its first failures with the end of their output.

    RUN is an id, the beginning of one, or `last`. Exits 0 also for a failed run, unless with --watch.
    """
    record = runs.load(home_of(home), run)
    shown = _watched(record, quiet=as_json) if watch else status.of_run(record)
    if as_json:
        print_json(status.to_json(shown))
    else:
        click.echo("\n".join(render.status_lines(shown, int(time.time() * 1000), home_flag(record, Path.cwd()))))
    if not watch:
        return 0
    return 3 if shown.is_interrupted else EXIT_CODES[shown.state]


def _watched(record: Record, *, quiet: bool) -> RunStatus:
    """The status at the run's end, or once it turns out that nobody executes it."""
    show = _LiveSteps() if sys.stderr.isatty() and not quiet else None
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


class _LiveSteps:
    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
        self._live.start()

    def update(self, shown: RunStatus) -> None:
        from batchyard.cli.progress import live_table

        self._live.update(live_table(list(shown.steps), int(time.time() * 1000)), refresh=True)

    def close(self) -> None:
        self._live.stop()
