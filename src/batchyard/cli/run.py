"""`batchyard run`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from batchyard import launch, runs, status
from batchyard import plan as planning
from batchyard.cli import pipelines, progress, render
from batchyard.cli.options import (
    env_option,
    example,
    home_flag,
    home_option,
    json_option,
    print_json,
)
from batchyard.engines.base import RunState
from batchyard.errors import BatchyardError, InputError, RunLockedError
from batchyard.plan import Plan
from batchyard.runs import Record

EXIT_CODES = {RunState.SUCCEEDED: 0, RunState.FAILED: 1, RunState.STOPPED: 130}


@click.command(
    epilog=example(
        "batchyard run pipeline.yaml",
        "batchyard run pipeline.yaml --set slices=128 --cpus 8 --detach",
        "batchyard run commands.txt --array 8 --gpus 1 --retries 2",
        "batchyard run pipeline.yaml --engine aws --env lab --detach",
    )
)
@click.argument("file", type=click.Path())
@click.option(
    "--detach",
    is_flag=True,
    help="Return at once and print the run's id; the run goes on by itself.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "aws"]),
    default="local",
    show_default=True,
    help="Where it runs.",
)
@env_option
@click.option("--on-demand", is_flag=True, help="AWS only: not on spot instances.")
@pipelines.pipeline_flags
@home_option
@json_option
def command(
    file: str,
    detach: bool,
    engine: str,
    env: str | None,
    on_demand: bool,
    home: str | None,
    as_json: bool,
    **flags: Any,
) -> int:
    """Run a pipeline file, or a plain list of commands, on this machine or on AWS Batch.

    FILE is a pipeline (.yaml, .yml or .json), or any other file with one shell command a line.
    Exit codes: 0 all succeeded, 1 a job failed, 2 bad input, 3 the surroundings, 130 stopped.
    """
    chosen = pipelines.chosen(file, flags)
    pipelines.show_warnings(chosen.pipeline)
    plan = planning.make(chosen.pipeline, only=flags["only"], start_from=flags["start_from"])
    where = runs.home_beside(chosen.pipeline.folder, home)
    if engine == "aws":
        record = _begin_on_aws(file, plan, chosen, where, env, on_demand)
        return go_on_aws(record, detach=detach, as_json=as_json)
    if env or on_demand:
        raise InputError("--env and --on-demand go with --engine aws", hint="add --engine aws")
    plan, setting, notes = launch.fit(plan, chosen.pipeline, chosen.offer)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    record = runs.begin(where, plan, setting, file=Path(file))
    return go(record, detach=detach, as_json=as_json)


def _begin_on_aws(
    file: str, plan: Plan, chosen: pipelines.Chosen, home: Path, env: str | None, on_demand: bool
) -> Record:
    from batchyard import cloud
    from batchyard.aws.s3 import Place
    from batchyard.images import registry
    from batchyard.pipeline_file import reading

    if env is None:
        raise InputError("--engine aws needs an environment", hint="name it with --env NAME")
    offer = chosen.offer
    for flag, value in (
        ("--cpus", offer.cpus),
        ("--memory", offer.memory_mib),
        ("--gpus", offer.gpus),
    ):
        if value is not None:
            raise InputError(
                f"{flag} is about this machine; on AWS the environment's queues say how much there is",
                hint=f"leave {flag} out",
            )
    if offer.runner != "process":
        raise InputError(
            "--runner is about this machine; on AWS every child is a container",
            hint="leave --runner out",
        )
    workspace = offer.workspace or chosen.pipeline.workspace or ""
    if workspace.startswith("s3://"):
        Place.of(workspace)  # names a bucket, or is refused before anything is recorded
    if reading.is_command_list(Path(file)) and not all(job.image for job in plan.jobs):
        raise InputError(
            f"{file} is run on AWS in containers, and nothing says of which image",
            hint="name it with --image NAME:TAG",
        )
    record, notes = cloud.begin(
        home,
        plan,
        chosen.pipeline,
        env,
        on_demand=on_demand,
        use_gpus=offer.use_gpus,
        workspace=offer.workspace,
        pinned=registry.pinned(home, env),
        file=Path(file),
    )
    for note in notes:
        click.echo(f"note: {note}", err=True)
    return record


def go_on_aws(record: Record, *, detach: bool, as_json: bool) -> int:
    """Submits a recorded run, follows it to its end, and fetches what it made."""
    from batchyard import cloud
    from batchyard.cli.following import follow
    from batchyard.engines.aws.engine import RunStoppedError

    def say(text: str) -> None:
        if not as_json:
            click.echo(text, err=True)

    say(f"run {record.run_id}")
    try:
        cloud.submit(record, say)
    except (KeyboardInterrupt, BatchyardError) as exc:
        if not isinstance(exc, RunLockedError | RunStoppedError):
            say(
                f"not all of it is submitted: `batchyard resume {record.run_id}` goes on, `stop` gives it up"
            )
        if isinstance(exc, BatchyardError):
            raise
        return 130
    if detach:
        if as_json:
            print_json(status.to_json(status.of_run(record)))
        else:
            click.echo(record.run_id)
        return 0
    try:
        shown = follow(record, quiet=as_json)
    except KeyboardInterrupt:
        say(
            f"the run goes on without us; `batchyard status {record.run_id} --watch` follows it, `stop` ends it"
        )
        return 130
    if shown.state is not RunState.RUNNING:
        _fetch(record, say)
    with suppress(OSError):
        if as_json:
            print_json(status.to_json(shown))
        else:
            click.echo(
                "\n".join(
                    render.status_lines(
                        shown, int(time.time() * 1000), home_flag(record, Path.cwd())
                    )
                )
            )
    return 3 if shown.is_interrupted else EXIT_CODES[shown.state]


def _fetch(record: Record, say: Callable[[str], None]) -> None:
    """What the run has made, to where its files came from."""
    from batchyard import cloud

    folder = record.workspace_here
    if folder is not None:
        fetched = cloud.fetch(record, folder)
        if fetched:
            say(f"fetched {fetched} output {'files' if fetched > 1 else 'file'} into {folder}")
    elif record.is_from_elsewhere and any(job.outputs for job in record.plan.jobs):
        command = f"batchyard fetch {record.run_id}{home_flag(record, Path.cwd())} --to DIR"
        say(f"its workspace is not on this machine: `{command}` downloads what it has made")


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
    watcher = progress.watcher_for(quiet=as_json)
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
            click.echo(
                "\n".join(
                    render.status_lines(shown, int(time.time() * 1000), home_flag(record, here))
                )
            )
    return EXIT_CODES[state]
