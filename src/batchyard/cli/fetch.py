"""`batchyard fetch`."""

from __future__ import annotations

from pathlib import Path

import click

from batchyard import operations
from batchyard.cli.options import example, find_run, home_option, run_argument, run_env_option
from batchyard.units import pluralize


@click.command(epilog=example("batchyard fetch last", "batchyard fetch last --to results"))
@run_argument
@click.option("--to", metavar="DIR", help="Folder to download to (default: the run's workspace).")
@run_env_option
@home_option
def command(run: str, to: str | None, env: str | None, home: str | None) -> None:
    """Download the output files of a run on AWS.

    RUN is an id, the beginning of an id, or `last`. Files that exist here with the same size and
    are not older are skipped. `run` without --detach downloads the files by itself when the run is
    over.
    """
    record = find_run(home, run, env)
    count, folder = operations.fetch(record, Path(to) if to else None)
    click.echo(f"{pluralize(count, 'file')} fetched into {folder}", err=True)
