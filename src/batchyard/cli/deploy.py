"""`batchyard deploy`."""

from __future__ import annotations

import click

from batchyard.cli.options import example
from batchyard.cli.stacks import (
    Terminal,
    environment_option,
    introduce,
    params_option,
    read_settings,
    set_option,
    tag_option,
    yes_option,
)


@click.command(
    epilog=example(
        "batchyard deploy --env dev",
        "batchyard deploy batch --env dev --set GpuSpotMaxvCpus=192",
        "batchyard deploy --env dev --params dev.yaml --tag team=vision",
        "batchyard deploy image --env dev --yes",
    )
)
@click.argument("templates", metavar="[TEMPLATE]...", nargs=-1)
@environment_option
@params_option
@set_option
@tag_option
@yes_option
def command(
    templates: tuple[str, ...],
    env: str,
    params: str | None,
    settings: tuple[str, ...],
    tags: tuple[str, ...],
    yes: bool,
) -> int:
    """Create or update an environment on AWS: CloudFormation stacks named NAME-TEMPLATE.

    Without TEMPLATE, deploys network, storage, iam, registry and batch, which pipelines need. Shows
    the changes of each stack, asks for confirmation, and waits for the end. After an interruption,
    run the same command again.
    """
    from batchyard.aws.cloudformation import CloudFormation
    from batchyard.aws.iam import Iam
    from batchyard.aws.session import AwsSession
    from batchyard.infra import catalogue, deploying, prechecks
    from batchyard.infra.stacks import Stacks

    selected = catalogue.select_templates(templates)
    values, all_tags, from_file = read_settings(params, settings, tags)
    values = catalogue.drop_foreign(values, from_file, selected)
    deploying.check_arguments(selected, env, values)
    prechecks.require_workable({template.name: values for template in selected}, env)
    session = AwsSession(None)
    aws, terminal = CloudFormation(session), Terminal(says_yes=yes, offers_all=True)
    introduce(env, aws)
    deploying.require_imports(aws, selected, env)
    stacks = Stacks(aws, terminal)
    try:
        planned_values = prechecks.read_values(stacks, selected, env, values)
        prechecks.require_workable(planned_values, env)
        for line in prechecks.describe_account(session, planned_values):
            terminal.say(line)
        changed = deploying.deploy(
            *(stacks, terminal, selected, env, values, all_tags),
            create_role=Iam(session).create_service_linked_role,
        )
    finally:
        terminal.close()
    if not changed:
        click.echo(f"environment {env} is up to date: nothing to do")
    elif any(template.name == "batch" for template in selected):
        click.echo(
            f"{env} is deployed: `batchyard run PIPELINE --engine aws --env {env}` uses its queues"
        )
    else:
        names = ", ".join(template.name for template in selected)
        click.echo(f"{env}: {names} deployed; `batchyard outputs --env {env}` lists the resources")
    return 0
