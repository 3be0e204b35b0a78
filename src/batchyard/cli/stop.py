"""`batchyard stop`."""

from __future__ import annotations

import click

from batchyard import operations
from batchyard.cli.options import env_option, example, find_run, home_option, run_argument
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
    default=DEFAULT_GRACE_S,
    show_default=True,
    help="Seconds from SIGTERM to SIGKILL.",
)
@env_option
@home_option
def command(run: str, step: str | None, grace: float, env: str | None, home: str | None) -> int:
    """Stop a run, or one step of it, from any terminal: SIGTERM, the grace, SIGKILL.

    The whole process tree of each child is ended. Returns when the run has stopped. Steps that
    depend on a stopped step fail. Stopping twice is the same as once.
    """
    record = find_run(home, run, env)
    stopped = operations.stop(record, step, grace)
    if stopped.was_over:
        click.echo(f"run {record.run_id} is over already: {stopped.state.value}")
    elif not stopped.has_ended:
        click.echo(f"run {record.run_id}: {step or 'all of it'} is told to stop")
    elif step is not None:
        click.echo(f"run {record.run_id}: {step} is stopped")
    else:
        click.echo(f"run {record.run_id}: {stopped.state.value}")
    return 0
