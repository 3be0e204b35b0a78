"""`batchyard status`."""

from __future__ import annotations

import time
from pathlib import Path

import click

from batchyard import operations, status
from batchyard.cli import render, render_bill
from batchyard.cli.options import (
    example,
    find_run,
    home_option,
    json_option,
    print_json,
    run_argument,
    run_env_option,
)
from batchyard.cli.run_results import exit_code, find_recorded_bill
from batchyard.folder import home_flag


@click.command(
    epilog=example(
        "batchyard status last", "batchyard status last --watch", "batchyard status last --json"
    )
)
@run_argument
@click.option(
    "--watch", is_flag=True, help="Show progress until the run ends, and exit with its exit code."
)
@run_env_option
@home_option
@json_option
def command(run: str, watch: bool, env: str | None, home: str | None, as_json: bool) -> int:
    """Show the steps of a run, and its first failures with the end of their output.

    RUN is an id, the beginning of an id, or `last`. The exit code is 0, also for a failed run. With
    --watch: 0 all jobs succeeded, 1 a job failed, 3 the run's process died, 130 stopped.
    """
    record = find_run(home, run, env)
    if watch:
        from batchyard.cli.following import follow

        current = follow(record, quiet=as_json)
        moved = operations.begin_fallback(record, _say)
        if moved is not None:
            from batchyard.cli.run import carry_out

            return carry_out(moved, detach=False, as_json=as_json)
    else:
        current = status.of_run(record)
    for note in current.notes:
        click.echo(note, err=True)
    bill = find_recorded_bill(record, asks_prices=watch)
    if as_json:
        print_json(status.to_json(current) | ({"cost": bill.to_json()} if bill else {}))
    else:
        flags = home_flag(record.folder, Path.cwd())
        lines = render.status_lines(current, int(time.time() * 1000), flags)
        click.echo("\n".join([*lines, *render_bill.recorded_lines(bill, flags)]))
    return exit_code(current) if watch else 0


def _say(text: str) -> None:
    click.echo(text, err=True)
