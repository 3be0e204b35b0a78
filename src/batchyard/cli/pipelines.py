"""From FILE and its flags to a pipeline: shared by validate, plan and run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from batchyard.cli.options import duration, memory, pairs
from batchyard.errors import InputError
from batchyard.launch import Offer
from batchyard.pipeline import Pipeline

F = TypeVar("F", bound=Callable[..., Any])

_FILE_FLAGS = [
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="Override one of the file's params.",
    ),
    click.option(
        "--only", metavar="STEP", help="Run just this step, as if what it needs were done."
    ),
    click.option(
        "--from", "start_from", metavar="STEP", help="Run this step and all that follows it."
    ),
]
_MACHINE_FLAGS = [
    click.option("--cpus", type=click.IntRange(1), help="vCPUs to use at most; with a list: what one child asks for."),
    click.option("--memory", callback=memory, metavar="AMOUNT", help="The same for memory, like 16GiB."),
    click.option("--gpus", type=click.IntRange(0), help="The same for GPUs."),
    click.option("--no-gpu", is_flag=True, help="Run GPU steps on the CPU, with BATCHYARD_DEVICE=cpu."),
    click.option(
        "--runner", type=click.Choice(["process", "docker"]), default="process", show_default=True,
        help="Run children as processes, or as containers of their step's image.",
    ),
    click.option("--workspace", metavar="DIR", help="Where commands run, instead of the file's folder."),
]  # fmt: skip
_LIST_FLAGS = [
    click.option(
        "--array",
        type=click.IntRange(1, 1_000_000),
        help="List only: share it out over so many children.",
    ),
    click.option(
        "--retries",
        type=click.IntRange(0, 9),
        default=None,
        help="List only: extra attempts of a child.",
    ),
    click.option(
        "--timeout",
        callback=duration,
        metavar="TIME",
        help="List only: an attempt's longest time, like 30m.",
    ),
    click.option(
        "--max-running", type=click.IntRange(1), help="List only: at most so many children at once."
    ),
    click.option(
        "--keep-going", is_flag=True, default=None, help="List only: go on after a command failed."
    ),
    click.option("--image", help="List only: the image, for --runner docker and for AWS."),
]


_LIST_ONLY = ("array", "retries", "timeout", "max_running", "keep_going", "image")


@dataclass(frozen=True, slots=True)
class Chosen:
    pipeline: Pipeline
    offer: Offer


def pipeline_flags(function: F) -> F:
    for option in reversed([*_FILE_FLAGS, *_MACHINE_FLAGS, *_LIST_FLAGS]):
        function = option(function)
    return function


def chosen(file: str, flags: Mapping[str, Any]) -> Chosen:
    """Reads FILE. With a plain list of commands, the flags that describe a machine describe one child instead."""
    from batchyard.pipeline_file import reading

    path = Path(file)
    if not reading.is_command_list(path):
        given = [name for name in _LIST_ONLY if flags[name] is not None]
        if given:
            names = ", ".join("--" + name.replace("_", "-") for name in given)
            raise InputError(
                f"{names} goes with a list of commands; {file} is a pipeline",
                hint="say it in the file",
            )
        pipeline = reading.load(path, pairs(flags["settings"]))
        offer = Offer(flags["cpus"], flags["memory"], flags["gpus"])
    else:
        if flags["settings"]:
            raise InputError(
                f"--set goes with a pipeline; {file} is a list of commands",
                hint="a list has no params",
            )
        pipeline = reading.load_list(
            path,
            array=flags["array"],
            cpus=flags["cpus"],
            memory_mib=flags["memory"],
            gpus=flags["gpus"],
            retries=flags["retries"],
            timeout_s=flags["timeout"],
            max_running=flags["max_running"],
            keep_going=flags["keep_going"],
            image=flags["image"],
        )
        offer = Offer()
    return Chosen(
        pipeline,
        Offer(
            offer.cpus,
            offer.memory_mib,
            offer.gpus,
            use_gpus=not flags["no_gpu"],
            runner=flags["runner"],
            workspace=flags["workspace"],
        ),
    )


def show_warnings(pipeline: Pipeline) -> None:
    for warning in pipeline.warnings:
        click.echo(str(warning), err=True)
