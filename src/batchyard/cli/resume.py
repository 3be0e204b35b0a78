"""`batchyard resume`."""

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
    sampling_option,
)
from batchyard.cli.run import carry_out
from batchyard.engines.base import RetryRequest


@click.command(epilog=example("batchyard resume last", "batchyard resume last --detach"))
@run_argument
@click.option(
    "--detach", is_flag=True, help="Continue in the background, print the run's id and return."
)
@continuation_options
@sampling_option
@run_env_option
@home_option
@json_option
def command(
    run: str,
    detach: bool,
    limit_cpus: int | None,
    limit_memory: int | None,
    workspace: str | None,
    is_sampled: bool | None,
    env: str | None,
    home: str | None,
    as_json: bool,
) -> int:
    """Continue a run whose process died, or whose jobs were not all submitted to AWS.

    RUN is an id, the beginning of an id, or `last`. Processes that the dead process left behind are
    ended first. Children that succeeded do not run again.
    """
    request = RetryRequest(
        cpus=limit_cpus, memory_mib=limit_memory, workspace=workspace, is_sampled=is_sampled
    )
    record = operations.prepare_resume(find_run(home, run, env), request, detached=detach)
    return carry_out(record, detach=detach, as_json=as_json)
