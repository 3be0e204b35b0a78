"""`batchyard diff`."""

from __future__ import annotations

import click

from batchyard.cli.options import example, pairs
from batchyard.cli.stacks import Terminal, environment_option, introduce, set_option


@click.command(
    epilog=example(
        "batchyard diff --env dev", "batchyard diff batch --env dev --set CpuSpotMaxvCpus=512"
    )
)
@click.argument("templates", metavar="[TEMPLATE]...", nargs=-1)
@environment_option
@set_option
def command(templates: tuple[str, ...], env: str, settings: tuple[str, ...]) -> int:
    """Show what `deploy` with the same arguments would change: + added, ~ changed, ! replaced, - removed.

    Nothing is changed. The change sets that AWS needs for the answer are deleted again.
    """
    from batchyard.aws.cloudformation import CloudFormation
    from batchyard.aws.session import AwsSession
    from batchyard.infra import catalogue, deploying
    from batchyard.infra.stacks import Stacks

    chosen, given = catalogue.chosen(templates), pairs(settings, like="GpuSpotMaxvCpus=192")
    deploying.check(chosen, env, given)
    aws, front = CloudFormation(AwsSession(None)), Terminal(changes_to_stdout=True)
    introduce(env, aws)
    try:
        deploying.diff(Stacks(aws, front), front, chosen, env, given)
    finally:
        front.close()
    return 0
