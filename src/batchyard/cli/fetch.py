"""`batchyard fetch`."""

from __future__ import annotations

import click

from batchyard.cli.options import env_option, example, find_run, home_option, run_argument
from batchyard.errors import BadInput


@click.command(epilog=example("batchyard fetch last", "batchyard fetch last --to results"))
@run_argument
@click.option("--to", metavar="DIR", help="Where to, instead of the run's workspace.")
@env_option
@home_option
def command(run: str, to: str | None, env: str | None, home: str | None) -> None:
    """Download what the steps of a run on AWS have given back; files that are here already are left.

    A `run` that is followed to its end does this by itself.
    """
    from pathlib import Path

    from batchyard import cloud

    record = find_run(home, run, env)
    if record.is_local:
        raise BadInput(f"run {record.run_id} is on this machine: its files are in {record.setting.workspace}")
    folder = Path(to).absolute() if to else Path(record.workspace) if record.workspace else None
    if folder is None:
        raise BadInput("the run's workspace is in S3", hint="say where to with --to DIR")
    count = cloud.fetch(record, folder)
    click.echo(f"{count} {'file' if count == 1 else 'files'} fetched into {folder}", err=True)
