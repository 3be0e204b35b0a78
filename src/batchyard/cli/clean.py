"""`batchyard clean`."""

from __future__ import annotations

import click

from batchyard import operations
from batchyard.cli.options import account_options, duration, example, home_of, home_option
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
    help="Delete runs that began longer ago than this, like 30d.",
)
@click.option("--keep", type=click.IntRange(0), metavar="N", help="Keep the N newest runs.")
@account_options
@home_option
def command(older_than: int | None, keep: int | None, home: str | None) -> int:
    """Delete old runs and their logs.

    Give at least one of the flags. With both, a run is deleted if it is old enough and not among
    the newest. A run that is not over is kept, unless none of its jobs was submitted to AWS and its
    bucket no longer exists. Nothing is deleted in S3: neither the objects of runs nor the input
    files that runs share.

    The exit code is 3 if a run could not be read or deleted.
    """
    deletion = operations.delete_runs(
        home_of(home),
        older_than_s=older_than,
        keep=keep,
        say=lambda text: click.echo(text, err=True),
    )
    click.echo(f"{pluralize(deletion.deleted, 'run')} deleted")
    return 3 if deletion.failed else 0
