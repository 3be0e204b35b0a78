"""`batchyard deploy`."""

from __future__ import annotations

import click

from batchyard.cli.options import example, pairs
from batchyard.cli.stacks import Terminal, environment_option, introduce, set_option, yes_option


@click.command(
    epilog=example(
        "batchyard deploy --env dev",
        "batchyard deploy batch --env dev --set GpuSpotMaxvCpus=192",
        "batchyard deploy image --env dev --yes",
    )
)
@click.argument("templates", metavar="[TEMPLATE]...", nargs=-1)
@environment_option
@set_option
@yes_option
def command(templates: tuple[str, ...], env: str, settings: tuple[str, ...], yes: bool) -> int:
    """Make or update an environment on AWS, by CloudFormation stacks named NAME-TEMPLATE.

    Without templates: network, storage, iam, registry and batch, which are all that pipelines need. Each stack's change
    is shown before you are asked, and followed to its end. Interrupted and run again, it goes on.
    """
    from batchyard.aws.cloudformation import CloudFormation
    from batchyard.aws.session import AwsSession
    from batchyard.infra import catalogue, deploying
    from batchyard.infra.stacks import Stacks

    chosen, given = catalogue.chosen(templates), pairs(settings, like="GpuSpotMaxvCpus=192")
    deploying.check(chosen, env, given)
    aws, front = CloudFormation(AwsSession(None)), Terminal(says_yes=yes, offers_all=True)
    introduce(env, aws)
    deploying.require_imports(aws, chosen, env)
    try:
        changed = deploying.deploy(Stacks(aws, front), front, chosen, env, given)
    finally:
        front.close()
    if not changed:
        click.echo(f"{env} is as it should be: nothing to do")
    elif any(one.name == "batch" for one in chosen):
        click.echo(
            f"{env} is deployed: `batchyard run PIPELINE --engine aws --env {env}` uses its queues"
        )
    else:
        click.echo(
            f"{env}: {', '.join(one.name for one in chosen)} deployed; `batchyard outputs --env {env}`"
        )
    return 0
