"""`batchyard image`: init, build, push."""

from __future__ import annotations

import os
from pathlib import Path

import click

from batchyard.cli.options import env_option, example, home_of, home_option
from batchyard.errors import InputError

_kind_option = click.option(
    "--kind",
    type=click.Choice(["cpu", "cuda", "opencl"]),
    default="cpu",
    show_default=True,
    help="Dockerfile to build from.",
)


@click.group(
    epilog=example(
        "batchyard image init",
        "batchyard image build --kind cuda --tag recon:1",
        "batchyard image push recon:1 --env lab",
    )
)
def command() -> None:
    """Container images for steps: recipes to start from, building, pushing."""


@command.command(epilog=example("batchyard image init", "batchyard image init images --kind cuda"))
@click.argument("folder", metavar="[DIR]", default=".")
@click.option(
    "--kind",
    type=click.Choice(["cpu", "cuda", "opencl", "all"]),
    default="all",
    show_default=True,
    help="Dockerfile to write.",
)
@click.option("--force", is_flag=True, help="Overwrite existing Dockerfiles.")
def init(folder: str, kind: str, force: bool) -> None:
    """Write Dockerfiles, and beside them the worker that goes into the images.

    Edit them freely: another `init` brings the worker up to date and leaves your Dockerfiles alone.
    """
    from batchyard.images import recipes

    for path in recipes.write(
        Path(folder), recipes.KINDS if kind == "all" else (kind,), force=force
    ):
        click.echo(path)


@command.command(epilog=example("batchyard image build --kind cuda --tag recon:1"))
@click.argument("folder", metavar="[DIR]", default=".")
@_kind_option
@click.option(
    "--tag",
    required=True,
    metavar="NAME[:TAG]",
    help="What to call it: what `image:` in a pipeline says.",
)
@click.option(
    "--build-arg",
    "arguments",
    multiple=True,
    metavar="NAME=VALUE",
    help="Passed on to docker build.",
)
def build(folder: str, kind: str, tag: str, arguments: tuple[str, ...]) -> None:
    """Build an image with Docker, from the Dockerfile of that kind."""
    from batchyard.images import registry

    registry.build(Path(folder), kind, tag, os.environ, arguments)


@command.command(epilog=example("batchyard image push recon:1 --env lab"))
@click.argument("image", metavar="NAME[:TAG]")
@env_option
@home_option
def push(image: str, env: str | None, home: str | None) -> None:
    """Push an image to the environment's repository; its runs use exactly this one from now on.

    Prints the image's address with its digest.
    """
    from batchyard.aws.environment_lookup import find_environment
    from batchyard.images import registry

    if env is None:
        raise InputError(
            "an image is pushed to an environment's repository", hint="name it with --env NAME"
        )
    where = home_of(home)
    click.echo(registry.push(image, find_environment(where, env), os.environ, where))
