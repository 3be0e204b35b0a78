"""`batchyard runs`."""

from __future__ import annotations

import time

import click

from batchyard import operations, runs, status
from batchyard.cli.options import (
    env_option_for,
    example,
    home_of,
    home_option,
    json_option,
    print_json,
)
from batchyard.cli.render import colour_state
from batchyard.cli.tables import table
from batchyard.errors import BatchyardError
from batchyard.folder import RunFolder, runs_in
from batchyard.status import RunStatus


@click.command(epilog=example("batchyard runs", "batchyard runs --json"))
@env_option_for("List the ids of all runs in the bucket of this AWS environment instead.")
@home_option
@json_option
def command(env: str | None, home: str | None, as_json: bool) -> int:
    """List the runs of this folder, newest first.

    A run is INTERRUPTED if its process died, or if not all of its jobs were submitted to AWS.
    """
    run_home = home_of(home)
    if env is not None:
        ids = operations.list_remote_runs(run_home, env)
        if as_json:
            print_json(ids)
        else:
            click.echo("\n".join(ids) if ids else f"no runs in environment {env}", err=not ids)
        return 0
    statuses = []
    for name in runs.names(run_home):
        try:
            record = runs.read(RunFolder(runs_in(run_home) / name))
            statuses.append(status.of_run(record, max_failures=0))
        except BatchyardError as exc:
            # A broken run must not hide the other runs.
            click.echo(f"{name}: {exc.message}", err=True)
    if as_json:
        print_json([_to_json(run) for run in statuses])
    elif statuses:
        headings = ("run", "state", "started", "took", "children", "failed")
        rows = [_to_row(run) for run in statuses]
        click.echo("\n".join(table(headings, rows, frozenset({4, 5}))))
    else:
        click.echo(f"no runs in {run_home}", err=True)
    return 0


def _to_json(run: RunStatus) -> dict[str, object]:
    return {
        "run": run.run,
        "pipeline": run.pipeline,
        "engine": run.engine,
        "state": run.state.value,
        "started": status.iso(run.started_ms),
        "ended": status.iso(run.ended_ms),
    }


def _to_row(run: RunStatus) -> tuple[str, ...]:
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime((run.started_ms or 0) / 1000))
    took = (
        ""
        if run.ended_ms is None or run.started_ms is None
        else f"{(run.ended_ms - run.started_ms) / 1000:.1f} s"
    )
    state = (
        click.style("INTERRUPTED", fg="yellow")
        if run.is_interrupted
        else colour_state(run.state.value)
    )
    failed = sum(step.failed for step in run.steps)
    return (
        run.run,
        state,
        started,
        took,
        str(sum(step.size for step in run.steps)),
        str(failed or ""),
    )
