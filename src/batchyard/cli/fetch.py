"""`batchyard fetch`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchyard.cli.options import env_option, example, find_run, home_option, run_argument
from batchyard.errors import BadInput

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
        raise BadInput(f"run {record.run_id} is on this machine: its files are in {record.setting.workspace}")
    folder = Path(to).absolute() if to else workspace_here(record)
    if folder is None:
        raise BadInput(_why_nowhere(record), hint="say where to with --to DIR")
    count = cloud.fetch(record, folder)
    click.echo(f"{count} {'file' if count == 1 else 'files'} fetched into {folder}", err=True)


def workspace_here(record: Record) -> Path | None:
    """The folder on this machine that the files of a run on AWS came from, and go back to."""
    folder = Path(record.workspace) if record.workspace else None
    return folder if folder is not None and folder.is_dir() else None


def is_from_elsewhere(record: Record) -> bool:
    """Whether the run has such a folder, and it is not here."""
    from batchyard.engines.aws.render import Target

    place = record.place
    assert isinstance(place, Target)
    # The files of a folder are among the runs, at the run's own address or at that of the one it retries.
    runs = f"s3://{place.environment.bucket}/{place.environment.prefix}runs/"
    return place.workspace.startswith(runs) and workspace_here(record) is None


def _why_nowhere(record: Record) -> str:
    if not is_from_elsewhere(record):
        return f"the workspace of run {record.run_id} is in S3"
    if record.workspace:
        return f"the workspace of run {record.run_id} is not here: there is no folder {record.workspace}"
    return f"run {record.run_id} was begun on another machine, and its workspace is there"
