"""`batchyard resume`."""

from __future__ import annotations

import click

from batchyard import operations
from batchyard.cli.options import (
    capacity_options,
    env_option,
    example,
    find_run,
    home_option,
    json_option,
    run_argument,
)
from batchyard.cli.run import carry_out
from batchyard.engines.base import RetryRequest


@click.command(epilog=example("batchyard resume last", "batchyard resume last --detach"))
@run_argument
@click.option("--detach", is_flag=True, help="Print the run's id and return; the run continues.")
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
    """Continue a run whose process died, or that was not submitted whole.

    Children that succeeded do not run again; processes that the dead one left are ended first.
    """
    request = RetryRequest(cpus=cpus, memory_mib=memory)
    record = operations.prepare_resume(find_run(home, run, env), request, detached=detach)
    return carry_out(record, detach=detach, as_json=as_json)
