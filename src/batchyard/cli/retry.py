"""`batchyard retry`."""

from __future__ import annotations

import click

from batchyard import command_records, operations
from batchyard.cli.options import (
    continuation_options,
    example,
    find_run,
    home_option,
    json_option,
    parse_child,
    run_argument,
    run_env_option,
    sampling_option,
)
from batchyard.cli.pipelines import cap_flags
from batchyard.cli.run import carry_out
from batchyard.engines.base import RetryRequest


@click.command(
    epilog=example(
        "batchyard retry last",
        "batchyard retry last --detach",
        "batchyard retry last reconstruct:17",
        "batchyard retry last --command 4711",
    )
)
@run_argument
@click.argument("child", metavar="[STEP[:INDEX]]", required=False)
@click.option(
    "--command",
    "command_name",
    metavar="COMMAND",
    help="Repeat only this command: STEP:NUMBER, NUMBER in a run with one step, or its text.",
)
@click.option(
    "--detach", is_flag=True, help="Start the new run in the background, print its id and return."
)
@click.option("--on-demand", is_flag=True, help="AWS only: use on-demand instances, not spot.")
@cap_flags
@continuation_options
@sampling_option
@run_env_option
@home_option
@json_option
def command(
    run: str,
    child: str | None,
    command_name: str | None,
    detach: bool,
    on_demand: bool,
    max_cost: float | None,
    max_cost_action: str,
    limit_cpus: int | None,
    limit_memory: int | None,
    workspace: str | None,
    is_sampled: bool | None,
    env: str | None,
    home: str | None,
    as_json: bool,
) -> int:
    """Start a new run of the children that failed or never ran.

    RUN is an id, the beginning of an id, or `last`; it must be over. Children that succeeded do not
    run again. The commands are those of RUN, even if the file has changed since. Each child keeps
    its number.

    With STEP, only the children of this step that failed or never ran. With STEP:INDEX or
    --command, this child or command, whether it succeeded or not.
    """
    record = find_run(home, run, env)
    request = RetryRequest(
        cpus=limit_cpus,
        memory_mib=limit_memory,
        workspace=workspace,
        on_demand=on_demand,
        max_cost_usd=max_cost,
        stops_at_cap=max_cost_action == "stop",
        is_sampled=is_sampled,
        part=command_records.find_part(record, *parse_child(child, record.plan), command_name),
    )
    retried = operations.begin_retry(record, request, lambda text: click.echo(text, err=True))
    return carry_out(retried, detach=detach, as_json=as_json)
