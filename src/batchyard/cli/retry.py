"""`batchyard retry`."""

from __future__ import annotations

import click

from batchyard import operations
from batchyard.cli.options import (
    continuation_options,
    example,
    find_run,
    home_option,
    json_option,
    run_argument,
    run_env_option,
)
from batchyard.cli.run import carry_out
from batchyard.engines.base import RetryRequest


@click.command(epilog=example("batchyard retry last", "batchyard retry last --detach"))
@run_argument
@click.option(
    "--detach", is_flag=True, help="Start the new run in the background, print its id and return."
)
@click.option("--on-demand", is_flag=True, help="AWS only: use on-demand instances, not spot.")
@continuation_options
@run_env_option
@home_option
@json_option
def command(
    run: str,
    detach: bool,
    on_demand: bool,
    limit_cpus: int | None,
    limit_memory: int | None,
    workspace: str | None,
    env: str | None,
    home: str | None,
    as_json: bool,
) -> int:
    """Start a new run of the children that failed or never ran.

    RUN is an id, the beginning of an id, or `last`; it must be over. Children that succeeded do not
    run again. The commands are those of RUN, even if the file has changed since. Each child keeps
    its number.
    """
    request = RetryRequest(
        cpus=limit_cpus, memory_mib=limit_memory, workspace=workspace, on_demand=on_demand
    )
    record = operations.begin_retry(
        find_run(home, run, env), request, lambda text: click.echo(text, err=True)
    )
    return carry_out(record, detach=detach, as_json=as_json)
