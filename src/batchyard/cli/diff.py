"""`batchyard diff`."""

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
)


@click.command(
    epilog=example(
        "batchyard diff --env dev", "batchyard diff batch --env dev --set CpuSpotMaxvCpus=512"
    )
)
@click.argument("templates", metavar="[TEMPLATE]...", nargs=-1)
@environment_option
@params_option
@set_option
@tag_option
def command(
    templates: tuple[str, ...],
    env: str,
    params: str | None,
    settings: tuple[str, ...],
    tags: tuple[str, ...],
) -> int:
    """Show what `deploy` with the same arguments would change.

    Marks: + added, ~ changed, ! replaced, - removed. Changes nothing: the change sets that AWS
    creates for the comparison are deleted again.
    """
    from batchyard.aws.cloudformation import CloudFormation
    from batchyard.aws.session import AwsSession
    from batchyard.infra import catalogue, deploying, prechecks
    from batchyard.infra.stacks import Stacks

    selected = catalogue.select_templates(templates)
    values, all_tags, from_file = read_settings(params, settings, tags)
    values = catalogue.drop_foreign(values, from_file, selected)
    deploying.check_arguments(selected, env, values)
    prechecks.require_workable({template.name: values for template in selected}, env)
    session = AwsSession(None)
    aws, terminal = CloudFormation(session), Terminal(changes_to_stdout=True)
    stacks = Stacks(aws, terminal)
    introduce(env, aws)
    try:
        planned_values = prechecks.read_values(stacks, selected, env, values)
        prechecks.require_workable(planned_values, env)
        for line in prechecks.describe_account(session, planned_values):
            terminal.say(line)
        deploying.diff(stacks, terminal, selected, env, values, all_tags)
    finally:
        terminal.close()
    return 0
