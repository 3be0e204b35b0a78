"""`batchyard execute RUN_FOLDER`: the process of a detached run. Hidden from `--help`."""

from __future__ import annotations

from pathlib import Path

import click

from batchyard import operations, runs
from batchyard.cli.progress import Silent
from batchyard.folder import RunFolder


@click.command(hidden=True)
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option("--carry-out-old-stops", is_flag=True)
def command(folder: str, carry_out_old_stops: bool) -> int:
    """Execute a recorded run to its end."""
    record = runs.read(RunFolder(Path(folder)))
    engine = record.open()
    try:
        operations.execute(record, engine, Silent(), carry_out_old_stops=carry_out_old_stops)
    finally:
        engine.close()
    return 0
