"""`batchyard stop`."""

from __future__ import annotations

import click

from batchyard import operations
from batchyard.cli.options import example, find_run, home_option, run_argument, run_env_option
from batchyard.engines.base import DEFAULT_GRACE_S


@click.command(
    epilog=example(
        "batchyard stop last", "batchyard stop last reconstruct", "batchyard stop last --grace 5"
    )
)
@run_argument
@click.argument("step", required=False)
@click.option(
    "--grace",
    type=click.FloatRange(0),
    metavar="SECONDS",
    default=DEFAULT_GRACE_S,
    show_default=True,
    help="Time from SIGTERM to SIGKILL. On AWS it is always 30.",
)
@run_env_option
@home_option
def command(run: str, step: str | None, grace: float, env: str | None, home: str | None) -> int:
    """Stop a run, or one step of it, from any terminal.

    RUN is an id, the beginning of an id, or `last`. All processes of running children get SIGTERM,
    and SIGKILL if they still run after the grace period. Steps that depend on a stopped step fail.
    Returns when everything has stopped. A run that is over is not changed.
    """
    record = find_run(home, run, env)
    stopped = operations.stop(record, step, grace)
    if stopped.was_over:
        click.echo(f"run {record.run_id} is over already: {stopped.state.value}")
    elif not stopped.has_ended:
        click.echo(f"run {record.run_id}: {step or 'the whole run'} is being stopped")
    elif step is not None:
        click.echo(f"run {record.run_id}: {step} is stopped")
    else:
        click.echo(f"run {record.run_id}: {stopped.state.value}")
    return 0
