"""`batchyard outputs`."""

from __future__ import annotations

from contextlib import suppress

import click

from batchyard.cli.options import example, json_option, print_json
from batchyard.cli.stacks import Terminal, environment_option, require_region
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
    """Show the outputs of an environment's stacks: queues, bucket, roles, policies."""
    from batchyard import environments
    from batchyard.aws.cloudformation import CloudFormation
    from batchyard.aws.session import AccessDeniedError, AwsSession
    from batchyard.infra import catalogue, deploying, listing
    from batchyard.infra.stacks import Stacks

    catalogue.check_environment(env)
    aws = CloudFormation(AwsSession(None))
    with require_region(env):
        outputs = deploying.read_outputs(Stacks(aws, Terminal()), env)
    if not outputs:
        suggestion = ""
        with suppress(AccessDeniedError):  # Listing stacks may be denied where describing is not.
            names = listing.find_environments(aws.summaries())
            suggestion = environments.near_hint(env, names)
        commands = (
            f"`batchyard deploy --env {env}` creates it, `batchyard environments` lists all"
            " environments"
        )
        raise InputError(
            f"nothing of environment {env!r} is deployed in {aws.region}",
            hint=suggestion or commands,
        )
    if as_json:
        print_json({"environment": env, "region": aws.region, "stacks": outputs})
        return 0
    rows = [
        (stack, name, value)
        for stack, stack_outputs in outputs.items()
        for name, value in stack_outputs.items()
    ]
    click.echo("\n".join(table(("template", "output", "value"), rows)))
    return 0
