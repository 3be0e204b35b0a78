"""Options and arguments that several commands have, and the parsing of their values."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from batchyard.errors import InputError
from batchyard.folder import find_home

if TYPE_CHECKING:
    from batchyard.engines.base import RunRecord
    from batchyard.plan import Plan

F = TypeVar("F", bound=Callable[..., Any])


def home_option(function: F) -> F:
    return home_option_for(
        "The .batchyard folder, with runs and environments.yaml (default: $BATCHYARD_HOME, or the"
        " nearest one from here upward)."
    )(function)


def home_option_for(text: str) -> Callable[[F], F]:
    """Return --home with this help text, for a command with another default."""
    return click.option(
        "--home", envvar="BATCHYARD_HOME", callback=_require_folder, metavar="DIR", help=text
    )


def env_option(function: F) -> F:
    return env_option_for("AWS environment; `batchyard environments` lists them.")(function)


def run_env_option(function: F) -> F:
    return env_option_for(
        "AWS environment in whose bucket RUN is looked for, if it is not in this .batchyard."
    )(function)


def env_option_for(text: str) -> Callable[[F], F]:
    """Return --env with this help text, and the options of the account that it is in."""

    def add(function: F) -> F:
        options = click.option("--env", callback=_require_name, metavar="NAME", help=text)
        return options(account_options(function))

    return add


def account_options(function: F) -> F:
    """Add --profile and --region, unless the command has a --region of its own.

    They are set as the environment variables that boto3 and the `aws` command read, so that every
    call of the process, and every process that it starts, uses them.
    """
    declared = {
        name for option in getattr(function, "__click_params__", []) for name in option.opts
    }
    if "--region" not in declared:
        function = click.option(
            "--region",
            callback=_set_region,
            expose_value=False,
            is_eager=True,
            metavar="NAME",
            help="AWS region (default: that of your AWS profile). An environment of"
            " environments.yaml has its own.",
        )(function)
    return click.option(
        "--profile",
        callback=_set_profile,
        expose_value=False,
        is_eager=True,
        metavar="NAME",
        help="Profile of your AWS configuration (default: $AWS_PROFILE).",
    )(function)


def _set_region(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value == "":
        raise InputError("--region is empty", hint="name a region, such as us-east-1")
    if value:
        os.environ["AWS_REGION"] = os.environ["AWS_DEFAULT_REGION"] = value


def _set_profile(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value == "":
        raise InputError("--profile is empty", hint="`aws configure list-profiles` shows them")
    if value:
        os.environ["AWS_PROFILE"] = value


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def continuation_options(function: F) -> F:
    """Add --limit-cpus, --limit-memory and --workspace: settings of a run that continues.

    --cpus and --memory are their old names.
    """
    for option in (
        click.option(
            "--workspace",
            metavar="DIR",
            help="Folder in which commands run, if it was moved since (default: as in RUN).",
        ),
        click.option(
            "--limit-memory",
            "--memory",
            "limit_memory",
            callback=memory,
            metavar="AMOUNT",
            help="Limit of the memory that the run uses at once, like 16GiB (default: as in RUN).",
        ),
        click.option(
            "--limit-cpus",
            "--cpus",
            "limit_cpus",
            type=click.IntRange(1),
            metavar="N",
            help="Limit of the vCPUs that the run uses at once (default: as in RUN).",
        ),
    ):
        function = option(function)
    return function


def sampling_option(function: F) -> F:
    """Add --no-sampling, whose value is `is_sampled`: False, or None without the flag."""
    return click.option(
        "--no-sampling",
        "is_sampled",
        flag_value=False,
        type=click.UNPROCESSED,
        default=None,
        help="Take no samples of the CPU, memory and GPUs that children use.",
    )(function)


def run_argument(function: F) -> F:
    return click.argument("run", metavar="RUN", shell_complete=_complete_run)(function)


def example(*lines: str) -> str:
    """Return an epilog with examples that click does not re-wrap."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def home_of(home: str | None) -> Path:
    """Return the `.batchyard` folder of commands about runs: from the current folder upward."""
    return find_home(Path.cwd(), home)


def find_run(home: str | None, name: str, env: str | None = None) -> RunRecord:
    """Return the run of that name; with an environment, also from the environment's bucket."""
    from batchyard import operations

    return operations.find_run(home_of(home), name, env)


def parse_child(child: str | None, plan: Plan) -> tuple[str | None, int | None]:
    """Return step and index of STEP[:INDEX], None for what is not given. Raises InputError."""
    if child is None:
        return None, None
    step, colon, index = child.partition(":")
    return plan.require_child(step, index if colon else None)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


def pairs(values: tuple[str, ...], like: str = "slices=128", flag: str = "--set") -> dict[str, str]:
    """Return the names and values of all `--set NAME=VALUE`. Raises InputError.

    ``like``: the example in the error message.
    """
    settings = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise InputError(
                f"{flag} {value!r} is not of the form NAME=VALUE",
                hint=f"for example {flag} {like}",
            )
        settings[name] = text
    return settings


def _require_folder(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the value of --home. Raises InputError if it is a file."""
    # Unlike those of Path, these functions do not raise below a folder that cannot be read.
    if value and os.path.exists(value) and not os.path.isdir(value):
        is_variable = (
            ctx.get_parameter_source(str(param.name)) is click.core.ParameterSource.ENVIRONMENT
        )
        raise InputError(
            f"{param.envvar if is_variable else '--home'} {value} is not a folder",
            hint="name the .batchyard folder itself, or leave it out",
        )
    return value


def _require_name(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the value of --env. Raises InputError if it is empty, as with an unset `"$ENV"`."""
    if value == "":
        raise InputError(
            "--env is empty", hint="name an environment: `batchyard environments` lists them"
        )
    return value


def memory(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return a size like "2GiB" in MiB. A callback for options."""
    from batchyard import units

    return _parse_amount(value, units.parse_memory)


def duration(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return a duration like "30m" in seconds. A callback for options."""
    from batchyard import units

    return _parse_amount(value, units.parse_duration)


def _parse_amount(value: str | None, parse: Callable[[str], int]) -> int | None:
    if value is None:
        return None
    try:
        return parse(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from None


def _complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from batchyard import runs

    names = ["last", *runs.names(home_of(ctx.params.get("home")))]
    return [name for name in names if name.startswith(incomplete)]
