"""`batchyard execute RUN_FOLDER`: the engine of a detached run. Not for people, and not in `--help`."""

from __future__ import annotations

from pathlib import Path

import click

from batchyard import launch, runs
from batchyard.cli.progress import Silent
from batchyard.folder import RunFolder


@click.command(hidden=True)
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
def command(folder: str) -> int:
    """Execute a recorded run to its end."""
    launch.execute(runs.read(RunFolder(Path(folder))), Silent())
    return 0
