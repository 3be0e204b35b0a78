"""`batchyard outputs`."""

from __future__ import annotations

from contextlib import suppress

import click

from batchyard.cli.options import example, json_option, print_json
from batchyard.cli.stacks import Terminal, environment_option, region_needed
from batchyard.cli.tables import table
from batchyard.errors import InputError


@click.command(
    epilog=example(
        "batchyard outputs --env dev", "batchyard outputs --env dev --json | jq .stacks.batch"
    )
)
@environment_option
@json_option
def command(env: str, as_json: bool) -> int:
    """Show what an environment's stacks have made: queues, bucket, roles, repositories, policies."""
    from batchyard import environments
    from batchyard.aws.cloudformation import CloudFormation
    from batchyard.aws.session import AccessDeniedError, AwsSession
    from batchyard.infra import catalogue, deploying, listing
    from batchyard.infra.stacks import Stacks

    catalogue.check_environment(env)
    aws = CloudFormation(AwsSession(None))
    with region_needed(env):
        found = deploying.outputs(Stacks(aws, Terminal()), env)
    if not found:
        near = ""
        with suppress(AccessDeniedError):  # who may not list them all may still look at one
            near = environments.near_hint(env, listing.deployed_environments(aws.summaries()))
        made = f"`batchyard deploy --env {env}` makes it, `batchyard environments` lists those that there are"
        raise InputError(
            f"nothing of environment {env!r} is deployed in {aws.region}",
            hint=near or made,
        )
    if as_json:
        print_json({"environment": env, "region": aws.region, "stacks": found})
        return 0
    rows = [
        (stack, name, value) for stack, outputs in found.items() for name, value in outputs.items()
    ]
    click.echo("\n".join(table(("template", "output", "value"), rows)))
    return 0
