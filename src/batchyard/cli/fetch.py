"""`batchyard fetch`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchyard.cli.options import env_option, example, find_run, home_option, run_argument
from batchyard.errors import InputError

if TYPE_CHECKING:
    from batchyard.runs import Record


@click.command(epilog=example("batchyard fetch last", "batchyard fetch last --to results"))
@run_argument
@click.option("--to", metavar="DIR", help="Where to, instead of the run's workspace.")
@env_option
@home_option
def command(run: str, to: str | None, env: str | None, home: str | None) -> None:
    """Download what the steps of a run on AWS have given back; files that are here already are left.

    A `run` that is followed to its end does this by itself.
    """
    from batchyard import cloud

    record = find_run(home, run, env)
    if record.is_local:
        raise InputError(
            f"run {record.run_id} is on this machine: its files are in {record.setting.workspace}"
        )
    folder = Path(to).absolute() if to else record.workspace_here
    if folder is None:
        raise InputError(_why_nowhere(record), hint="say where to with --to DIR")
    count = cloud.fetch(record, folder)
    click.echo(f"{count} {'file' if count == 1 else 'files'} fetched into {folder}", err=True)


def _why_nowhere(record: Record) -> str:
    if not record.is_from_elsewhere:
        return f"the workspace of run {record.run_id} is in S3"
    if record.workspace:
        return f"the workspace of run {record.run_id} is not here: there is no folder {record.workspace}"
    return f"run {record.run_id} was begun on another machine, and its workspace is there"
