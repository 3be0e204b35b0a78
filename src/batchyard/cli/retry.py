"""`batchyard retry`."""

from __future__ import annotations

import click

from batchyard import launch
from batchyard.cli.options import (
    capacity_options,
    env_option,
    example,
    find_run,
    home_option,
    json_option,
    run_argument,
)
from batchyard.cli.run import go, go_on_aws
from batchyard.errors import InputError


@click.command(epilog=example("batchyard retry last", "batchyard retry last --detach"))
@run_argument
@click.option("--detach", is_flag=True, help="Return at once and print the new run's id.")
@click.option("--on-demand", is_flag=True, help="AWS only: not on spot instances.")
@capacity_options
@env_option
@home_option
@json_option
def command(
    run: str,
    detach: bool,
    on_demand: bool,
    cpus: int | None,
    memory: int | None,
    env: str | None,
    home: str | None,
    as_json: bool,
) -> int:
    """Start a new run of only what failed or never ran; what succeeded is not run again.

    The commands are those of the first run, also if their file has changed since; each child keeps its number.
    """
    old = find_run(home, run, env)
    if not old.is_local:
        from batchyard import cloud

        if cpus or memory:
            raise InputError(
                "--cpus and --memory are about this machine", hint=f"run {old.run_id} is on AWS"
            )
        record = cloud.begin_retry(
            old, on_demand=on_demand, say=lambda text: click.echo(text, err=True)
        )
        return go_on_aws(record, detach=detach, as_json=as_json)
    if on_demand:
        raise InputError(
            "--on-demand goes with a run on AWS", hint=f"run {old.run_id} is on this machine"
        )
    record = launch.begin_retry(old, cpus, memory)
    return go(record, detach=detach, as_json=as_json)
