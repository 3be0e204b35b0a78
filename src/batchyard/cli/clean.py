"""`batchyard clean`."""

from __future__ import annotations

import time

import click

from batchyard import runs
from batchyard.cli.options import duration, example, home_of, home_option
from batchyard.engines.base import RunRecord
from batchyard.errors import BatchyardError, InputError
from batchyard.folder import RunFolder, runs_in
from batchyard.units import pluralize


def _parse_age(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return the seconds of --older-than. A number without a unit is an error."""
    # Other options read such a number as seconds; a user who means days would lose all runs.
    if value is not None and value.strip().isdigit():
        raise click.BadParameter(
            f"{value!r} has no unit; write {value}d for days, or {value}h for hours"
        )
    return duration(ctx, param, value)


@click.command(epilog=example("batchyard clean --older-than 30d", "batchyard clean --keep 10"))
@click.option(
    "--older-than",
    callback=_parse_age,
    metavar="TIME",
    help="Delete runs that started longer ago than this, like 30d.",
)
@click.option("--keep", type=click.IntRange(0), help="Number of newest runs to keep.")
@home_option
def command(older_than: int | None, keep: int | None, home: str | None) -> int:
    """Delete old runs and their logs. With both flags, a run is deleted only if both select it.

    A run that is not over is not deleted, unless none of it was submitted and its bucket no longer
    exists.
    """
    if older_than is None and keep is None:
        raise InputError("no runs are selected", hint="give --older-than 30d, --keep 10, or both")
    run_home = home_of(home)
    now_ms = time.time() * 1000
    deleted = 0
    runs.delete_halves(run_home)
    for position, name in enumerate(runs.names(run_home)):
        try:
            record = runs.read(RunFolder(runs_in(run_home) / name))
            is_old = older_than is None or now_ms - record.created_ms > older_than * 1000
            is_beyond = keep is None or position >= keep
            if not (is_old and is_beyond):
                continue
            if not _is_deletable(record):
                click.echo(
                    f"{name} is not over, so it is kept: `batchyard stop {name}` first", err=True
                )
                continue
            runs.delete(record)
            deleted += 1
        except BatchyardError as exc:
            click.echo(f"{name}: {exc.message}", err=True)
    click.echo(f"{pluralize(deleted, 'run')} deleted")
    return 0


def _is_deletable(record: RunRecord) -> bool:
    engine = record.open()
    try:
        return engine.is_deletable
    finally:
        engine.close()
