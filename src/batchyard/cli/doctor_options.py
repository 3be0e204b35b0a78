"""The flags of `batchyard doctor`."""

from __future__ import annotations

import click

from batchyard.cli.options import F, duration, home_option, json_option, memory
from batchyard.cli.pipelines import LIST_FLAGS, REQUEST_FLAGS, set_option

all_option = click.option(
    "--all",
    "with_all",
    is_flag=True,
    help="List also the checks that passed and the checks that could not run.",
)
sarif_option = click.option(
    "--sarif",
    "as_sarif",
    is_flag=True,
    help="Print SARIF 2.1.0, for code scanning in CI and for editors.",
)
dwell_option = click.option(
    "--dwell",
    callback=duration,
    default="15m",
    metavar="TIME",
    show_default=True,
    help="Time that a fleet may need to start. A job that has waited less is not called stuck.",
)
region_option = click.option(
    "--region",
    metavar="NAME",
    help="AWS region (default: the region of the environment, or of your AWS profile).",
)


def aws_options(function: F) -> F:
    """Add the flags of the commands that ask AWS."""
    for option in (
        json_option,
        all_option,
        click.option(
            "--fix",
            is_flag=True,
            help="Offer to fix problems that have a safe fix. Asks before each change.",
        ),
        dwell_option,
        click.option(
            "--from",
            "source",
            metavar="FILE",
            help="Examine facts from a file that --save wrote, instead of asking AWS.",
        ),
        click.option(
            "--save",
            metavar="FILE",
            help="Write the facts to a file, with secrets and account ids masked.",
        ),
        home_option,
    ):
        function = option(function)
    return function


def shape_options(function: F) -> F:
    """Add the flags that describe the resources of a step."""
    for option in (
        click.option(
            "--gpus", type=click.IntRange(0), help="Check for a step with this many GPUs."
        ),
        click.option(
            "--memory",
            callback=memory,
            metavar="AMOUNT",
            help="Check for a step with this much memory, like 14GiB.",
        ),
        click.option(
            "--cpus", type=click.IntRange(1), help="Check for a step with this many vCPUs."
        ),
    ):
        function = option(function)
    return function


def run_options(function: F) -> F:
    """Add the flags of `run` that change what is submitted, except `--from STEP`."""
    for option in (
        *reversed(LIST_FLAGS),
        *reversed(REQUEST_FLAGS),
        click.option(
            "--no-gpu",
            is_flag=True,
            help="Examine GPU steps as CPU steps, as `run --no-gpu` runs them.",
        ),
        click.option(
            "--on-demand",
            is_flag=True,
            help="Examine the on-demand queues, which `run --on-demand` uses.",
        ),
        click.option("--only", metavar="STEP", help="Examine only this step."),
        set_option,
    ):
        function = option(function)
    return function
