"""Read the FILE argument and its flags as a pipeline, for validate, plan and run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from batchyard import engines
from batchyard.cli.options import duration, env_option_for, memory, pairs
from batchyard.errors import InputError
from batchyard.pipeline import MAX_ARRAY_SIZE, MAX_RETRIES, Pipeline
from batchyard.quick_dataclasses import dataclass
from batchyard.shard import SHARE_OUTS

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
        "--set-env",
        "variables",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set an environment variable of all steps. May be repeated.",
    ),
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
#: what each command of a plain list requests
REQUEST_FLAGS = [
    click.option(
        "--cpus",
        type=click.IntRange(1),
        metavar="N",
        help="List only: vCPUs of each command (default: 1).",
    ),
    click.option(
        "--memory",
        callback=memory,
        metavar="AMOUNT",
        help="List only: memory of each command, like 14GiB (default: 512MiB).",
    ),
    click.option(
        "--gpus",
        type=click.IntRange(0),
        metavar="N",
        help="List only: GPUs of each command (default: 0).",
    ),
]
_MACHINE_FLAGS = [
    click.option(
        "-j",
        "--at-once",
        type=click.IntRange(1),
        metavar="N",
        help="List only: number of commands that run at once, also above the number of vCPUs"
        " (default: as many as fit). AWS: number of children that share the list.",
    ),
    click.option(
        "--limit-cpus",
        type=click.IntRange(1),
        metavar="N",
        help="Limit of the vCPUs that the run uses at once (default: all).",
    ),
    click.option(
        "--limit-memory",
        callback=memory,
        metavar="AMOUNT",
        help="Limit of the memory that the run uses at once, like 16GiB (default: all).",
    ),
    click.option(
        "--limit-gpus",
        type=click.IntRange(0),
        metavar="N",
        help="Limit of the GPUs that the run uses at once (default: all).",
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
        help="List only: number of children that share the list, and at most so many commands at"
        " once (default: as many as fit).",
    ),
    click.option(
        "--share-out",
        type=click.Choice(SHARE_OUTS),
        help="List only: dynamic hands out one command after the other; static and strided give"
        " each child of --array its part beforehand (default: dynamic).",
    ),
    click.option(
        "--weight",
        metavar="WORD",
        help="List only: the word of each command that says how much work it is: its number from"
        " 0, or the word before it, like --frames or '#'. Large ones go first (default: the times"
        " of earlier runs).",
    ),
    click.option(
        "--retries",
        type=click.IntRange(0, MAX_RETRIES),
        metavar="N",
        default=None,
        help="List only: extra attempts of a command that fails (default: 0).",
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
        help="List only: go on after a command has failed (the default).",
    ),
    click.option(
        "--fail-fast",
        is_flag=True,
        default=None,
        help="List only: stop the run when a command has failed.",
    ),
    click.option(
        "--image",
        metavar="NAME",
        help="List only: container image, for --runner docker and for AWS.",
    ),
]


_LIST_ONLY = (
    "array",
    "share_out",
    "weight",
    "retries",
    "timeout",
    "max_running",
    "keep_going",
    "fail_fast",
    "image",
)
#: flags that mean nothing to a single command
_NOT_OF_COMMANDS = (
    *("settings", "only", "start_from", "at_once", "array", "share_out", "max_running"),
    *("keep_going", "fail_fast"),
)
#: flags whose names differ from those of their values
_FLAG_NAMES = {"settings": "--set", "start_from": "--from", "at_once": "-j"}
#: flags of a request -> the flags that limit a run
_LIMITS = {"cpus": "limit_cpus", "memory": "limit_memory", "gpus": "limit_gpus"}
#: FILE that means the standard input
_STDIN = "-"


@dataclass(frozen=True, slots=True)
class Source:
    """The pipeline in FILE, and the part of this machine that its run may use."""

    pipeline: Pipeline
    offer: Offer
    #: sentences for the user about the flags
    notes: tuple[str, ...] = ()


def engine_flags(function: F) -> F:
    """Add the flags that select an engine: --engine, --env, --on-demand and --spot."""
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
            click.option(
                "--spot",
                is_flag=True,
                help="AWS only: stay on spot instances, without `spot: fallback_after` of the"
                " file.",
            ),
        ]
    ):
        function = option(function)
    return function


def max_cost_flag(function: F) -> F:
    return click.option(
        "--max-cost",
        callback=_read_usd,
        metavar="USD",
        help="On AWS: the most that the run may cost, in US dollars, like 20"
        " (default: `max_cost` in the file).",
    )(function)


def cap_flags(function: F) -> F:
    """Add --max-cost and --max-cost-action."""
    action = click.option(
        "--max-cost-action",
        type=click.Choice(["hold", "stop"]),
        default="hold",
        show_default=True,
        help="At --max-cost, hold: nothing more starts; stop: running children end, too.",
    )
    return max_cost_flag(action(function))


def _read_usd(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    from batchyard.pipeline_file.cost_keys import parse_usd

    usd = parse_usd(value.removeprefix("$"))
    if usd is None:
        raise click.BadParameter("write US dollars above 0, like 20 or 2.50")
    return usd


def pipeline_flags(function: F) -> F:
    """Add the flags of `plan` and `run` to a command; ``load_source`` reads them."""
    for option in reversed([*_FILE_FLAGS, *_MACHINE_FLAGS, *REQUEST_FLAGS, *LIST_FLAGS]):
        function = option(function)
    return function


def load_source(file: str, flags: Mapping[str, Any]) -> Source:
    """Read FILE with the flags of ``pipeline_flags``. Raises InputError.

    --limit-cpus and its like limit the run; --cpus and its like are what each command of a plain
    list requests. A pipeline file has its requests in it, so there --cpus means --limit-cpus.
    """
    from batchyard.pipeline_file import plain_lists

    variables = pairs(flags["variables"], "EPOCHS=3", "--set-env")
    if plain_lists.is_command_list(Path(file)):
        refuse_settings(file, flags["settings"])
        pipeline = plain_lists.override_env(load_list(file, flags), variables)
        return Source(pipeline, _read_offer(flags))
    from batchyard.pipeline_file import reading  # not for a list: it takes 10 ms

    _refuse_list_flags(file, flags)
    pipeline = reading.load(Path(file), pairs(flags["settings"]))
    pipeline = plain_lists.override_env(pipeline, variables)
    renamed = {name: limit for name, limit in _LIMITS.items() if flags[name] is not None}
    for name, limit in renamed.items():
        if flags[limit] is not None:
            raise InputError(
                f"{_flag(name)} is what each command of a plain list requests, and {file} is a"
                " pipeline",
                hint=f"leave it out: {_flag(limit)} limits the run",
            )
    notes = [f"for a pipeline, write {_flag(renamed[name])} for {_flag(name)}" for name in renamed]
    limits = {limit: flags[name] for name, limit in renamed.items()}
    return Source(pipeline, _read_offer({**flags, **limits}), tuple(notes))


def load_command(words: Sequence[str], flags: Mapping[str, Any]) -> Source:
    """Return a single command with the flags of ``pipeline_flags``. Raises InputError."""
    from batchyard.pipeline_file import plain_lists

    names = [name for name in _NOT_OF_COMMANDS if flags[name]]
    if names:
        raise InputError(
            f"{', '.join(map(_flag, names))}: not for a single command",
            hint="leave it out, or write the command into a file",
        )
    pipeline = plain_lists.make_command(
        words,
        pairs(flags["variables"], "EPOCHS=3", "--set-env"),
        cpus=flags["cpus"],
        memory_mib=flags["memory"],
        gpus=flags["gpus"],
        retries=flags["retries"],
        timeout_s=flags["timeout"],
        image=flags["image"],
    )
    return Source(pipeline, _read_offer(flags))


def _read_offer(flags: Mapping[str, Any]) -> Offer:
    from batchyard.engines.base import Offer

    return Offer(
        cpus=flags["limit_cpus"],
        memory_mib=flags["limit_memory"],
        gpus=flags["limit_gpus"],
        at_once=flags["at_once"],
        use_gpus=not flags["no_gpu"],
        runner=flags["runner"],
        workspace=flags["workspace"],
    )


def load_list(file: str, flags: Mapping[str, Any]) -> Pipeline:
    """Read a plain list: a file, a pipe, or for `-` the standard input."""
    from batchyard.pipeline_file import plain_lists

    if file == _STDIN and sys.stdin is not None and sys.stdin.isatty():
        click.echo("write one command a line; Ctrl-D ends the list", err=True)
    return plain_lists.load_list(
        None if file == _STDIN else Path(file),
        array=flags.get("array"),
        share_out=flags.get("share_out"),
        weight=flags.get("weight"),
        cpus=flags.get("cpus"),
        memory_mib=flags.get("memory"),
        gpus=flags.get("gpus"),
        retries=flags.get("retries"),
        timeout_s=flags.get("timeout"),
        max_running=flags.get("max_running"),
        keep_going=flags.get("keep_going"),
        fail_fast=flags.get("fail_fast"),
        image=flags.get("image"),
    )


def _flag(name: str) -> str:
    """Return the flag that sets the value of that name."""
    return _FLAG_NAMES.get(name, "--" + name.replace("_", "-"))


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
        flag_names = ", ".join(map(_flag, names))
        keys = ", ".join(f"`{name}:`" for name in names)
        raise InputError(
            f"{flag_names}: only for a plain list of commands, and {file} is a pipeline",
            hint=f"write {keys} into the file instead",
        )


def print_warnings(pipeline: Pipeline) -> None:
    """Print the warnings about a pipeline file to stderr."""
    for warning in pipeline.warnings:
        click.echo(str(warning), err=True)


def print_source_notes(source: Source) -> None:
    """Print the warnings about FILE, and the notes about its flags, to stderr."""
    print_warnings(source.pipeline)
    for note in source.notes:
        click.echo(f"note: {note}", err=True)
