"""`batchyard destroy`."""

from __future__ import annotations

from contextlib import suppress

import click

from batchyard.cli.options import example, home_of
from batchyard.cli.stacks import Terminal, environment_option, holding_lines, introduce, yes_option
from batchyard.errors import InputError
from batchyard.units import pluralize


@click.command(
    epilog=example("batchyard destroy --env dev", "batchyard destroy ecs --env dev --empty-buckets")
)
@click.argument("templates", metavar="[TEMPLATE]...", nargs=-1)
@environment_option
@click.option(
    "--empty-buckets", is_flag=True, help="Delete what is in the buckets, all versions of it."
)
@click.option("--delete-images", is_flag=True, help="Delete the images in the repositories.")
@yes_option
def command(
    templates: tuple[str, ...], env: str, empty_buckets: bool, delete_images: bool, yes: bool
) -> int:
    """Delete an environment's stacks, those first that others do not need. Without templates: all of them.

    What holds data is listed before you are asked. A bucket or repository that is not empty stops it before anything
    is deleted, unless you say that its content may go. Interrupted and run again, it goes on.
    """
    from batchyard.aws.cloudformation import CloudFormation
    from batchyard.aws.holdings import Holdings
    from batchyard.aws.session import AwsSession
    from batchyard.infra import catalogue, deploying
    from batchyard.infra.stacks import DeclinedError, Stacks

    catalogue.check_environment(env)
    chosen = catalogue.chosen(templates) if templates else catalogue.everything()
    session = AwsSession(None)
    aws, holdings, front = CloudFormation(session), Holdings(session), Terminal(says_yes=yes)
    stacks = Stacks(aws, front)
    introduce(env, aws)
    try:
        doomed = deploying.survey(stacks, aws, holdings, chosen, env)
        if not doomed:
            click.echo(f"nothing of {env} is deployed: nothing to do")
            _tell_of_file(env)
            return 0
        click.echo(f"to be deleted: {', '.join(one.stack for one in doomed)}", err=True)
        for line in holding_lines((one.stack, held) for one in doomed for held in one.holdings):
            click.echo(line, err=True)
        users = deploying.outside_users(stacks, doomed, env)
        in_the_way = deploying.obstacles(
            doomed, users, empty_buckets=empty_buckets, delete_images=delete_images
        )
        if in_the_way:
            raise InputError("nothing was deleted:\n  " + "\n  ".join(in_the_way))
        if not front.ask(
            f"delete {pluralize(len(doomed), 'stack')} of {env}, with all that they hold?"
        ):
            raise DeclinedError("nothing was deleted")
        deploying.destroy(
            stacks,
            holdings,
            front,
            doomed,
            env,
            empty_buckets=empty_buckets,
            delete_images=delete_images,
        )
    finally:
        front.close()
    click.echo(f"{', '.join(one.stack for one in doomed)}: gone")
    return 0


def _tell_of_file(env: str) -> None:
    """Whoever brings an environment has made its parts, and is the one to delete them."""
    from batchyard import environments

    path = home_of(None) / environments.FILE_NAME
    with suppress(
        InputError
    ):  # a file with mistakes is no reason to fail where nothing is to be done
        if env in environments.read(path):
            click.echo(
                f"{env} is an environment of {path}: what it names was not deployed here, and stays",
                err=True,
            )
