"""`batchyard resume`."""

from __future__ import annotations

from dataclasses import replace

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


@click.command(epilog=example("batchyard resume last", "batchyard resume last --detach"))
@run_argument
@click.option("--detach", is_flag=True, help="Return at once and print the run's id.")
@capacity_options
@env_option
@home_option
@json_option
def command(
    run: str,
    detach: bool,
    cpus: int | None,
    memory: int | None,
    env: str | None,
    home: str | None,
    as_json: bool,
) -> int:
    """Go on with a run whose process died: what succeeded is not run again, what it left running is ended first."""
    record = find_run(home, run, env)
    if not record.is_local:
        if cpus or memory:
            raise InputError(
                "--cpus and --memory are about this machine", hint=f"run {record.run_id} is on AWS"
            )
        return go_on_aws(record, detach=detach, as_json=as_json)
    launch.require_resumable(record)
    setting = launch.with_capacity(record.setting, record.plan, cpus, memory)
    if detach and setting != record.setting:
        raise InputError(
            "--cpus and --memory go with a resume in the foreground", hint="leave --detach out"
        )
    return go(replace(record, place=setting), detach=detach, as_json=as_json)
