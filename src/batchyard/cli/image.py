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
    help="Kind of Dockerfile to build.",
)


@click.group(
    epilog=example(
        "batchyard image init",
        "batchyard image build --kind cuda --tag recon:1",
        "batchyard image push recon:1 --env lab",
    )
)
def command() -> None:
    """Write, build and push container images for steps."""


@command.command(epilog=example("batchyard image init", "batchyard image init images --kind cuda"))
@click.argument("folder", metavar="[DIR]", default=".")
@click.option(
    "--kind",
    type=click.Choice(["cpu", "cuda", "opencl", "all"]),
    default="all",
    show_default=True,
    help="Kind of Dockerfile to write.",
)
@click.option("--force", is_flag=True, help="Overwrite existing Dockerfiles.")
def init(folder: str, kind: str, force: bool) -> None:
    """Write Dockerfiles into DIR, and the worker that is copied into the images.

    DIR is the current folder by default. Edit the Dockerfiles: another `init` updates the worker
    and keeps your Dockerfiles.
    """
    from batchyard.images import recipes

    for path in recipes.write(
        Path(folder), recipes.KINDS if kind == "all" else (kind,), force=force
    ):
        click.echo(path)


@command.command(
    epilog=example(
        "batchyard image build --kind cuda --tag recon:1",
        "batchyard image build --tag recon:1 --platform linux/amd64",
    )
)
@click.argument("folder", metavar="[DIR]", default=".")
@_kind_option
@click.option(
    "--tag",
    required=True,
    metavar="NAME[:TAG]",
    help="Name of the image, as `image:` in a pipeline file names it.",
)
@click.option(
    "--build-arg",
    "arguments",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a build argument of the Dockerfile. May be repeated.",
)
@click.option(
    "--platform",
    metavar="OS/CPU",
    help="Platform of the hosts, like linux/amd64 or linux/arm64 (default: this machine's).",
)
def build(
    folder: str, kind: str, tag: str, arguments: tuple[str, ...], platform: str | None
) -> None:
    """Build an image with Docker, from DIR/Dockerfile.KIND.

    DIR is the current folder by default.
    """
    from batchyard.images import registry

    registry.build(Path(folder), kind, tag, os.environ, arguments, platform)


@command.command(epilog=example("batchyard image push recon:1 --env lab"))
@click.argument("image", metavar="NAME[:TAG]")
@env_option
@home_option
def push(image: str, env: str | None, home: str | None) -> None:
    """Push an image to the repository of an environment. Later runs there use exactly this image.

    Docker's progress is on stderr. Prints the address of the image with its digest.
    """
    from batchyard.aws.environment_lookup import find_environment
    from batchyard.images import registry

    if env is None:
        raise InputError(
            "an image is pushed to the repository of an environment, and none is given",
            hint="add --env NAME",
        )
    folder = home_of(home)
    click.echo(registry.push(image, find_environment(folder, env), os.environ, folder))
