"""`batchyard destroy`."""

from __future__ import annotations

import time
from contextlib import suppress

import click

from batchyard.cli.options import example, home_of
from batchyard.cli.stacks import Terminal, environment_option, holding_lines, introduce, yes_option
from batchyard.errors import InputError
from batchyard.folder import environments_file
from batchyard.units import pluralize


@click.command(
    epilog=example(
        "batchyard destroy --env dev",
        "batchyard destroy ecs --env dev --empty-buckets",
        "batchyard destroy gpu-batch-benchmark --env gpu-benchmark --empty-buckets",
    )
)
@click.argument("templates", metavar="[TEMPLATE]...", nargs=-1)
@environment_option
@click.option(
    "--empty-buckets", is_flag=True, help="Delete all objects in the buckets, with all versions."
)
@click.option("--delete-images", is_flag=True, help="Delete all images in the repositories.")
@yes_option
def command(
    templates: tuple[str, ...], env: str, empty_buckets: bool, delete_images: bool, yes: bool
) -> int:
    """Delete the stacks of an environment. Without TEMPLATE, deletes all of them.

    Lists the data in the stacks and asks for confirmation. Deletes nothing if a bucket or
    repository is not empty, unless --empty-buckets or --delete-images is given. Finds the stack of
    gpu-batch-benchmark also if its name is NAME, as `sam deploy` makes it. With an ECS cluster,
    deletes its services, stops its tasks, and ends its nodes, protected ones too. After an
    interruption, run the same command again.
    """
    from batchyard.aws.cloudformation import CloudFormation
    from batchyard.aws.clusters import Clusters
    from batchyard.aws.holdings import Holdings
    from batchyard.aws.session import AwsSession
    from batchyard.infra import STANDALONE, catalogue, cluster_release, destroying
    from batchyard.infra.stacks import DeclinedError, Stacks

    if templates == (STANDALONE,):
        catalogue.check_stack_name(env)
    else:
        catalogue.check_environment(env)
    selected = catalogue.select_templates(templates) if templates else catalogue.all_templates()
    session = AwsSession(None)
    aws, holdings, terminal = CloudFormation(session), Holdings(session), Terminal(says_yes=yes)
    stacks = Stacks(aws, terminal)
    introduce(env, aws)
    try:
        to_delete = destroying.find_stacks_to_delete(stacks, aws, holdings, selected, env)
        if not to_delete:
            click.echo(f"nothing of {env} is deployed: nothing to do")
            _mention_file(env)
            return 0
        names = ", ".join(entry.stack for entry in to_delete)
        click.echo(f"to be deleted: {names}", err=True)
        holdings_by_stack = (
            (entry.stack, holding) for entry in to_delete for holding in entry.holdings
        )
        for line in holding_lines(holdings_by_stack):
            click.echo(line, err=True)
        importers = destroying.find_outside_importers(stacks, to_delete, env)
        obstacles = destroying.find_obstacles(
            to_delete, importers, empty_buckets=empty_buckets, delete_images=delete_images
        )
        if obstacles:
            raise InputError("nothing was deleted:\n  " + "\n  ".join(obstacles))
        count = pluralize(len(to_delete), "stack")
        if not terminal.ask(f"delete {count} of {env}, with everything in them?"):
            raise DeclinedError("nothing was deleted")
        destroying.destroy(
            stacks,
            holdings,
            terminal,
            to_delete,
            env,
            empty_buckets=empty_buckets,
            delete_images=delete_images,
            release=lambda entry: cluster_release.release(
                Clusters(session), terminal, entry.stack, entry.resources, time.sleep
            ),
        )
    finally:
        terminal.close()
    click.echo(f"{names}: deleted")
    return 0


def _mention_file(env: str) -> None:
    """Tell the user if the environment is one of the file: its parts were not deployed."""
    from batchyard import environments

    path = environments_file(home_of(None))
    # A file with mistakes is no reason to fail if there is nothing to do.
    with suppress(InputError):
        if env in environments.read(path):
            click.echo(
                f"{env} is an environment of {path}: its resources were not deployed by batchyard,"
                " and are not deleted",
                err=True,
            )
