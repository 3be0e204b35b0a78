"""`batchyard execute RUN_FOLDER`: the process of a detached run. Hidden from `--help`."""

from __future__ import annotations

from pathlib import Path

import click

from batchyard import runs
from batchyard.cli.progress import Silent
from batchyard.engines.base import say_nothing
from batchyard.folder import RunFolder
from batchyard.supervision import Supervisor


@click.command(hidden=True)
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option("--carry-out-old-stops", is_flag=True)
def command(folder: str, carry_out_old_stops: bool) -> int:
    """Execute a recorded run to its end."""
    record = runs.read(RunFolder(Path(folder)))
    engine = record.open()
    try:
        engine.execute(
            Silent(),
            carry_out_old_stops=carry_out_old_stops,
            supervise=Supervisor(record, engine, say_nothing),
        )
    finally:
        engine.close()
    return 0
