"""Read the FILE argument and its flags as a pipeline, for validate, plan and run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from batchyard import engines
from batchyard.cli.options import duration, env_option_for, memory, pairs
from batchyard.errors import InputError
from batchyard.pipeline import MAX_ARRAY_SIZE, MAX_RETRIES, Pipeline
from batchyard.quick_dataclasses import dataclass

if TYPE_CHECKING:
    from batchyard.engines.base import Offer

F = TypeVar("F", bound=Callable[..., Any])

set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Override a value of `params` in the file. May be repeated.",
)
_FILE_FLAGS = [
    set_option,
    click.option(
        "--only", metavar="STEP", help="Run only this step. The steps it needs count as done."
    ),
    click.option(
        "--from",
        "start_from",
        metavar="STEP",
        help="Run this step and the steps that depend on it. All others count as done.",
    ),
]
_MACHINE_FLAGS = [
    click.option(
        "--cpus",
        type=click.IntRange(1),
        metavar="N",
        help="Pipeline: limit of the vCPUs that the run uses at once (default: all). List: vCPUs of"
        " each child (default: 1).",
    ),
    click.option(
        "--memory",
        callback=memory,
        metavar="AMOUNT",
        help="Pipeline: limit of the memory that the run uses at once, like 16GiB (default: all)."
        " List: memory of each child (default: 512MiB).",
    ),
    click.option(
        "--gpus",
        type=click.IntRange(0),
        metavar="N",
        help="Pipeline: limit of the GPUs that the run uses at once (default: all). List: GPUs of"
        " each child (default: 0).",
    ),
    click.option(
        "--no-gpu", is_flag=True, help="Run GPU steps on the CPU, with BATCHYARD_DEVICE=cpu."
    ),
    click.option(
        "--runner",
        type=click.Choice(["process", "docker"]),
        default="process",
        show_default=True,
        help="Run children as processes, or as containers of the step's image.",
    ),
    click.option(
        "--workspace",
        metavar="DIR",
        help="Folder in which commands run (default: `workspace` in the file, or the file's"
        " folder).",
    ),
]
#: flags that are only for a plain list of commands
LIST_FLAGS = [
    click.option(
        "--array",
        type=click.IntRange(1, MAX_ARRAY_SIZE),
        metavar="N",
        help="List only: number of children that share the list (default: 1).",
    ),
    click.option(
        "--retries",
        type=click.IntRange(0, MAX_RETRIES),
        metavar="N",
        default=None,
        help="List only: extra attempts of a child (default: 0).",
    ),
    click.option(
        "--timeout",
        callback=duration,
        metavar="TIME",
        help="List only: longest time of an attempt, like 30m (default: no limit).",
    ),
    click.option(
        "--max-running",
        type=click.IntRange(1),
        metavar="N",
        help="List only: largest number of children that run at once (default: no limit).",
    ),
    click.option(
        "--keep-going",
        is_flag=True,
        default=None,
        help="List only: a child runs its remaining commands after one of them failed.",
    ),
    click.option(
        "--image",
        metavar="NAME",
        help="List only: container image, for --runner docker and for AWS.",
    ),
]


_LIST_ONLY = ("array", "retries", "timeout", "max_running", "keep_going", "image")


@dataclass(frozen=True, slots=True)
class Source:
    """The pipeline in FILE, and the part of this machine that its run may use."""

    pipeline: Pipeline
    offer: Offer


def engine_flags(function: F) -> F:
    """Add the flags that select an engine: --engine, --env and --on-demand."""
    for option in reversed(
        [
            click.option(
                "--engine",
                type=click.Choice(list(engines.ENGINES)),
                default=engines.DEFAULT,
                show_default=True,
                help=" ".join(
                    f"{name}: {entry.summary}." for name, entry in engines.ENGINES.items()
                ),
            ),
            env_option_for("AWS only: environment to run in; `batchyard environments` lists them."),
            click.option(
                "--on-demand", is_flag=True, help="AWS only: use on-demand instances, not spot."
            ),
        ]
    ):
        function = option(function)
    return function


def pipeline_flags(function: F) -> F:
    """Add the flags of `plan` and `run` to a command; ``load_source`` reads them."""
    for option in reversed([*_FILE_FLAGS, *_MACHINE_FLAGS, *LIST_FLAGS]):
        function = option(function)
    return function


def load_source(file: str, flags: Mapping[str, Any]) -> Source:
    """Read FILE with the flags of ``pipeline_flags``.

    For a pipeline, --cpus, --memory and --gpus limit the run; for a plain list they are the
    resources of each child. Raises InputError.
    """
    from batchyard.engines.base import Offer
    from batchyard.pipeline_file import plain_lists

    path = Path(file)
    offer = Offer(
        use_gpus=not flags["no_gpu"], runner=flags["runner"], workspace=flags["workspace"]
    )
    if plain_lists.is_command_list(path):
        refuse_settings(file, flags["settings"])
        return Source(_load_list(path, flags), offer)
    from batchyard.pipeline_file import reading  # not for a list: it takes 10 ms

    _refuse_list_flags(file, flags)
    pipeline = reading.load(path, pairs(flags["settings"]))
    offer = replace(offer, cpus=flags["cpus"], memory_mib=flags["memory"], gpus=flags["gpus"])
    return Source(pipeline, offer)


def _load_list(path: Path, flags: Mapping[str, Any]) -> Pipeline:
    from batchyard.pipeline_file import plain_lists

    return plain_lists.load_list(
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


def refuse_settings(file: str, settings: Sequence[str]) -> None:
    """Raise InputError for --set with a plain list."""
    if settings:
        raise InputError(
            f"--set is only for a pipeline, and {file} is a plain list of commands",
            hint="leave --set out: a list has no params",
        )


def _refuse_list_flags(file: str, flags: Mapping[str, Any]) -> None:
    names = [name for name in _LIST_ONLY if flags[name] is not None]
    if names:
        flag_names = ", ".join("--" + name.replace("_", "-") for name in names)
        keys = ", ".join(f"`{name}:`" for name in names)
        raise InputError(
            f"{flag_names}: only for a plain list of commands, and {file} is a pipeline",
            hint=f"write {keys} into the steps of the file instead",
        )


def print_warnings(pipeline: Pipeline) -> None:
    """Print the warnings about a pipeline file to stderr."""
    for warning in pipeline.warnings:
        click.echo(str(warning), err=True)
