"""Following a run on AWS: a look now and then, a live table on a terminal, a line where a step changes elsewhere."""

from __future__ import annotations

import sys
import time

import click

from batchyard import cloud, status
from batchyard.engines.base import RunState
from batchyard.runs import Record
from batchyard.status import RunStatus


def follow(record: Record, *, quiet: bool) -> RunStatus:
    """The status at the run's end, or once it turns out that it was not submitted whole."""
    patience = cloud.Patience()
    show = LiveSteps() if sys.stderr.isatty() and not quiet else None
    states: dict[str, str] = {}
    engine = record.open_aws()
    try:
        while True:
            shown = status.of_engine(record, engine, max_failures=0)
            if shown.state is not RunState.RUNNING or shown.is_interrupted:
                return status.of_engine(record, engine)
            if show is not None:
                show.update(shown)
            elif not quiet:
                _tell(shown, states)
            time.sleep(
                patience.after(
                    [
                        (step.state, step.succeeded, step.failed, step.running)
                        for step in shown.steps
                    ]
                )
            )
    finally:
        if show is not None:
            show.close()


def _tell(shown: RunStatus, states: dict[str, str]) -> None:
    for step in shown.steps:
        if states.get(step.name) != step.state.value:
            states[step.name] = step.state.value
            click.echo(
                f"{step.name}: {step.state.value} {step.succeeded}/{step.size} succeeded", err=True
            )


class LiveSteps:
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
