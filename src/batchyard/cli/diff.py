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
    """Show what `deploy` with the same arguments would change.

    Marks: + added, ~ changed, ! replaced, - removed. Changes nothing: the change sets that AWS
    creates for the comparison are deleted again.
    """
    from batchyard.aws.cloudformation import CloudFormation
    from batchyard.aws.session import AwsSession
    from batchyard.infra import catalogue, deploying
    from batchyard.infra.stacks import Stacks

    selected = catalogue.select_templates(templates)
    values = pairs(settings, like="GpuSpotMaxvCpus=192")
    deploying.check_arguments(selected, env, values)
    aws, terminal = CloudFormation(AwsSession(None)), Terminal(changes_to_stdout=True)
    introduce(env, aws)
    try:
        deploying.diff(Stacks(aws, terminal), terminal, selected, env, values)
    finally:
        terminal.close()
    return 0
