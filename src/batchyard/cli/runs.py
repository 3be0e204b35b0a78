"""`batchyard runs`."""

from __future__ import annotations

import time

import click

from batchyard import operations, runs, status
from batchyard.cli.options import env_option, example, home_of, home_option, json_option, print_json
from batchyard.cli.render import colour_state
from batchyard.cli.tables import table
from batchyard.errors import BatchyardError
from batchyard.folder import RunFolder, runs_in
from batchyard.status import RunStatus


@click.command(epilog=example("batchyard runs", "batchyard runs --json"))
@env_option
@home_option
@json_option
def command(env: str | None, home: str | None, as_json: bool) -> int:
    """List the runs of this folder, newest first; with --env, the ids of all runs in the environment's bucket."""
    where = home_of(home)
    if env is not None:
        ids = operations.list_remote_runs(where, env)
        if as_json:
            print_json(ids)
        else:
            click.echo("\n".join(ids) if ids else f"no runs in environment {env}", err=not ids)
        return 0
    found = []
    for name in runs.names(where):
        try:
            found.append(status.of_run(runs.read(RunFolder(runs_in(where) / name)), max_failures=0))
        except BatchyardError as exc:
            # One broken run must not hide the others.
            click.echo(f"{name}: {exc.message}", err=True)
    if as_json:
        print_json([_summary(one) for one in found])
    elif found:
        rows = [_row(one) for one in found]
        click.echo(
            "\n".join(
                table(
                    ("run", "state", "started", "took", "children", "failed"),
                    rows,
                    frozenset({4, 5}),
                )
            )
        )
    else:
        click.echo(f"no runs in {where}", err=True)
    return 0


def _summary(one: RunStatus) -> dict[str, object]:
    return {
        "run": one.run,
        "pipeline": one.pipeline,
        "engine": one.engine,
        "state": one.state.value,
        "started": status.iso(one.started_ms),
        "ended": status.iso(one.ended_ms),
    }


def _row(one: RunStatus) -> tuple[str, ...]:
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime((one.started_ms or 0) / 1000))
    took = (
        ""
        if one.ended_ms is None or one.started_ms is None
        else f"{(one.ended_ms - one.started_ms) / 1000:.1f} s"
    )
    state = (
        click.style("INTERRUPTED", fg="yellow")
        if one.is_interrupted
        else colour_state(one.state.value)
    )
    failed = sum(step.failed for step in one.steps)
    return (
        one.run,
        state,
        started,
        took,
        str(sum(step.size for step in one.steps)),
        str(failed or ""),
    )
