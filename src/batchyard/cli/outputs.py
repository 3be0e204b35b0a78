"""`batchyard outputs`."""

from __future__ import annotations

import click

from batchyard.cli.options import example, json_option, print_json
from batchyard.cli.render import table
from batchyard.cli.stacks import Terminal, environment_option
from batchyard.errors import BadInput


@click.command(epilog=example("batchyard outputs --env dev", "batchyard outputs --env dev --json | jq .stacks.batch"))
@environment_option
@json_option
def command(env: str, as_json: bool) -> int:
    """Show what an environment's stacks have made: queues, bucket, roles, repositories, policies."""
    from batchyard.aws.cloudformation import CloudFormation
    from batchyard.aws.door import Door
    from batchyard.infra import catalogue, deploying
    from batchyard.infra.stacks import Stacks

    catalogue.check_environment(env)
    aws = CloudFormation(Door(None))
    found = deploying.outputs(Stacks(aws, Terminal()), env)
    if not found:
        raise BadInput(
            f"nothing of environment {env!r} is deployed in {aws.region}",
            hint=f"`batchyard deploy --env {env}` makes it, `batchyard environments` lists those that there are",
        )
    if as_json:
        print_json({"environment": env, "region": aws.region, "stacks": found})
        return 0
    rows = [(stack, name, value) for stack, outputs in found.items() for name, value in outputs.items()]
    click.echo("\n".join(table(("template", "output", "value"), rows)))
    return 0
