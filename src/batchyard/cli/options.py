"""What several commands have in common: flags, the RUN argument, and how input is read from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from batchyard.errors import InputError
from batchyard.folder import find_home

if TYPE_CHECKING:
    from batchyard.engines.base import RunRecord

F = TypeVar("F", bound=Callable[..., Any])


def home_option(function: F) -> F:
    return click.option(
        "--home",
        envvar="BATCHYARD_HOME",
        callback=_folder,
        metavar="DIR",
        help="Folder of the runs (default: the nearest .batchyard).",
    )(function)


def env_option(function: F) -> F:
    return click.option(
        "--env",
        callback=_named,
        metavar="NAME",
        help="AWS environment; `batchyard environments` lists them.",
    )(function)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def capacity_options(function: F) -> F:
    """What the rest of a run may use, where that is not what it began with."""
    for option in (
        click.option(
            "--memory",
            callback=memory,
            metavar="AMOUNT",
            help="Memory that the run may use, like 16GiB (default: as before).",
        ),
        click.option(
            "--cpus",
            type=click.IntRange(1),
            help="vCPUs that the run may use (default: as before).",
        ),
    ):
        function = option(function)
    return function


def run_argument(function: F) -> F:
    return click.argument("run", metavar="RUN", shell_complete=_complete_run)(function)


def example(*lines: str) -> str:
    """An epilog that click does not re-wrap."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def home_of(home: str | None) -> Path:
    """Return the `.batchyard` folder of commands about runs: from the current folder upward."""
    return find_home(Path.cwd(), home)


def find_run(home: str | None, name: str, env: str | None = None) -> RunRecord:
    """Return the run of that name here, or with an environment, in its bucket."""
    from batchyard import operations

    return operations.find_run(home_of(home), name, env)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


def pairs(values: tuple[str, ...], like: str = "slices=128") -> dict[str, str]:
    """`--set k=v`, as often as given; ``like``: an example."""
    found = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise InputError(
                f"--set {value!r} is not of the form NAME=VALUE", hint=f"for example --set {like}"
            )
        found[name] = text
    return found


def _folder(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A flag's callback: where it is a file, that is said once, and not by whoever first looks for something in it."""
    if value and Path(value).exists() and not Path(value).is_dir():
        is_variable = (
            ctx.get_parameter_source(str(param.name)) is click.core.ParameterSource.ENVIRONMENT
        )
        raise InputError(
            f"{param.envvar if is_variable else '--home'} {value}: this is no folder",
            hint="name the .batchyard folder itself, or leave it out",
        )
    return value


def _named(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A flag's callback: `--env "$ENV"` where nobody has set ENV."""
    if value == "":
        raise InputError(
            "--env is empty", hint="name an environment: `batchyard environments` lists them"
        )
    return value


def memory(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """A flag's callback: "2GiB" -> MiB."""
    return _amount(value, "memory_mib")


def duration(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """A flag's callback: "30m" -> seconds."""
    return _amount(value, "seconds")


def _amount(value: str | None, kind: str) -> int | None:
    from batchyard import units

    if value is None:
        return None
    try:
        return units.parse_memory(value) if kind == "memory_mib" else units.parse_duration(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from None


def _complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from batchyard import runs

    known = ["last", *runs.names(home_of(ctx.params.get("home")))]
    return [name for name in known if name.startswith(incomplete)]
