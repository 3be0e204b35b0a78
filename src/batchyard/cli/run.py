"""`batchyard run`."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from batchyard import launch, runs, status
from batchyard import plan as planning
from batchyard.cli import pipelines, progress, render
from batchyard.cli.options import example, home_flag, home_option, json_option, print_json
from batchyard.engines.base import RunState
from batchyard.runs import Record

EXIT_CODES = {RunState.SUCCEEDED: 0, RunState.FAILED: 1, RunState.STOPPED: 130}


@click.command(
    epilog=example(
        "batchyard run pipeline.yaml",
        "batchyard run pipeline.yaml --set slices=128 --cpus 8 --detach",
        "batchyard run commands.txt --array 8 --gpus 1 --retries 2",
    )
)
@click.argument("file", type=click.Path())
@click.option("--detach", is_flag=True, help="Return at once and print the run's id; the run goes on by itself.")
@pipelines.pipeline_flags
@home_option
@json_option
def command(file: str, detach: bool, home: str | None, as_json: bool, **flags: Any) -> int:
    """Run a pipeline file, or a plain list of commands, on this machine.

    FILE is a pipeline (.yaml, .yml or .json), or any other file with one shell command a line.
    Exit codes: 0 all succeeded, 1 a job failed, 2 bad input, 3 the surroundings, 130 stopped.
    """
    chosen = pipelines.chosen(file, flags)
    pipelines.show_warnings(chosen.pipeline)
    plan = planning.make(chosen.pipeline, only=flags["only"], start_from=flags["start_from"])
    plan, setting, notes = launch.fit(plan, chosen.pipeline, chosen.offer)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    record = runs.begin(runs.home_beside(chosen.pipeline.folder, home), plan, setting, file=Path(file))
    return go(record, detach=detach, as_json=as_json)


def go(record: Record, *, detach: bool, as_json: bool) -> int:
    """Executes a recorded run here, or in a process of its own; the exit code says how it ended."""
    here = Path.cwd()  # executing goes to the workspace
    if detach:
        launch.execute_detached(record)
        if as_json:
            print_json(status.to_json(status.of_run(record)))
        else:
            click.echo(record.run_id)
        return 0
    watcher = progress.watcher_for(record.plan, quiet=as_json)
    if not as_json:
        with suppress(OSError):
            click.echo(f"run {record.run_id}", err=True)
    try:
        state = launch.execute(record, watcher)
    finally:
        watcher.close()
    shown = status.of_run(record)
    # The run's end is what the exit code tells, also where nobody reads the text any more.
    with suppress(OSError):
        if as_json:
            print_json(status.to_json(shown))
        else:
            click.echo("\n".join(render.status_lines(shown, int(time.time() * 1000), home_flag(record, here))))
    return EXIT_CODES[state]
