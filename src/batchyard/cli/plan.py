"""`batchyard plan`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from batchyard import engines, operations
from batchyard import plan as planning
from batchyard.cli import pipelines, render, render_cost
from batchyard.cli.options import (
    duration,
    example,
    find_run,
    home_option_for,
    json_option,
    print_json,
)
from batchyard.engines.base import RetryRequest, RunRequest
from batchyard.errors import InputError
from batchyard.folder import home_beside
from batchyard.operations import Preview

if TYPE_CHECKING:
    from batchyard.cost.advice import Advice
    from batchyard.cost.plan_cost import PlanCost

#: Flags of --retry and --resume, and those that only --retry has.
_RUN_FLAGS = frozenset(
    "retry resume commands reasons with_cost expect_s advise env home as_json".split()
) | {"profile", "region"}
_RETRY_FLAGS = frozenset(("limit_cpus", "limit_memory", "workspace", "on_demand", "max_cost"))


@click.command(
    epilog=example(
        "batchyard plan pipeline.yaml",
        "batchyard plan commands.txt -j 8 --commands",
        "batchyard plan --retry last --reasons",
        "batchyard plan pipeline.yaml --cost --expect 3m",
        "batchyard plan pipeline.yaml --advise",
        "batchyard plan pipeline.yaml --engine aws --env lab",
    )
)
@click.argument("file", metavar="[FILE]", type=click.Path(), required=False)
@click.option("--retry", metavar="RUN", help="Show what `retry RUN` would do.")
@click.option("--resume", metavar="RUN", help="Show what `resume RUN` would do.")
@click.option("--commands", is_flag=True, help="List the commands that would run.")
@click.option("--reasons", is_flag=True, help="List the commands, and why each would run.")
@click.option(
    "--cost",
    "with_cost",
    is_flag=True,
    help="Estimate what the run would cost on EC2, from the times of earlier runs.",
)
@click.option(
    "--expect",
    "expect_s",
    callback=duration,
    metavar="TIME",
    help="With --cost: usual time of a command that no earlier run has executed, like 3m.",
)
@click.option(
    "--advise",
    is_flag=True,
    help="Show what each step used in earlier runs, what it needs, and which instance types fit.",
)
@pipelines.engine_flags
@pipelines.max_cost_flag
@pipelines.pipeline_flags
@home_option_for(
    "The .batchyard folder with the runs and environments (default: $BATCHYARD_HOME, or the one"
    " beside FILE)."
)
@json_option
def command(
    file: str | None,
    retry: str | None,
    resume: str | None,
    commands: bool,
    reasons: bool,
    with_cost: bool,
    expect_s: int | None,
    advise: bool,
    engine: str,
    env: str | None,
    home: str | None,
    as_json: bool,
    **flags: Any,
) -> int:
    """Show what `run` would do, without running anything.

    FILE is a pipeline (.yaml, .yml or .json), or a plain list: any other file, a pipe, or `-`, with
    one shell command a line. Prints the steps with their children, commands and resources, in
    order. With `--engine aws`, also prints the requests that `run` would send to AWS Batch, and
    what the run is likely to cost; nothing is sent. With --retry or --resume instead of FILE: what
    these commands would do.
    """
    if [file, retry, resume].count(None) != 2:
        raise InputError(
            "what is to be planned?", hint="give one of FILE, --retry RUN and --resume RUN"
        )
    if file is not None:
        subject = _preview_file(file, engine, env, home, flags)
    else:
        subject = _preview_run(retry, resume, env, home, flags)
    cost = _estimate_cost(subject, expect_s, with_cost)
    advice = _find_advice(subject.preview, subject.home) if advise else None
    with_commands = commands or reasons
    if as_json:
        document = subject.preview.to_json(subject.engine, with_commands=with_commands)
        document |= {"cost": cost.to_json()} if cost else {}
        print_json(document | ({"advice": advice.to_json()} if advice else {}))
    else:
        _print(subject.preview, with_commands=with_commands, with_reasons=reasons)
        _print_cost(cost, advice, with_cost=with_cost)
    for note in subject.preview.notes:
        click.echo(f"note: {note}", err=True)
    return 0


class _Subject(NamedTuple):
    """What is planned: a new run, a retry or a resume."""

    preview: Preview
    #: The name of the engine.
    engine: str
    #: The folder with the earlier runs.
    home: Path


def _preview_run(
    retry: str | None, resume: str | None, env: str | None, home: str | None, flags: Any
) -> _Subject:
    """Return what `retry` or `resume` would do; one of both is named."""
    _refuse_file_flags("--resume" if retry is None else "--retry")
    record = find_run(home, str(resume if retry is None else retry), env)
    preview = (
        operations.preview_resume(record)
        if retry is None
        else operations.preview_retry(record, _read_changes(flags))
    )
    return _Subject(preview, record.engine.name, record.home)


def _refuse_file_flags(instead: str) -> None:
    """Raise InputError for flags that need FILE. ``instead``: the flag that stands for FILE."""
    context = click.get_current_context()
    allowed = _RUN_FLAGS | (_RETRY_FLAGS if instead == "--retry" else frozenset())
    refused = [
        param.opts[0]
        for param in context.command.params
        if param.name not in allowed
        and context.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
    ]
    if refused:
        raise InputError(
            f"{', '.join(refused)}: not with {instead}", hint="the plan is that of the run"
        )


def _read_changes(flags: Mapping[str, Any]) -> RetryRequest:
    return RetryRequest(
        cpus=flags["limit_cpus"],
        memory_mib=flags["limit_memory"],
        on_demand=flags["on_demand"],
        workspace=flags["workspace"],
        max_cost_usd=flags["max_cost"],
    )


def _preview_file(
    file: str, engine: str, env: str | None, home: str | None, flags: Any
) -> _Subject:
    source = pipelines.load_source(file, flags)
    pipelines.print_source_notes(source)
    request = RunRequest(
        plan=planning.make(source.pipeline, only=flags["only"], start_from=flags["start_from"]),
        pipeline=source.pipeline,
        home=home_beside(source.pipeline.folder, home),
        offer=source.offer,
        environment=env,
        on_demand=flags["on_demand"],
        spot=flags["spot"],
        max_cost_usd=flags["max_cost"],
    )
    return _Subject(operations.preview(engines.load(engine), request), engine, request.home)


def _estimate_cost(subject: _Subject, expect_s: int | None, with_cost: bool) -> PlanCost | None:
    """Return the cost on the hosts of the run's queues; with --cost, also of a run without any."""
    preview, engine, home = subject
    prepared = preview.prepared
    if prepared is not None and prepared.environment is not None:
        from batchyard.cost.plan_cost import cost_of_prepared

        return cost_of_prepared(
            prepared, home, engine, expect_s=expect_s, max_cost_usd=preview.max_cost_usd
        )
    if not with_cost:
        return None
    from batchyard.cost.market import AwsMarket
    from batchyard.cost.plan_cost import cost_of_plan

    return cost_of_plan(preview.plan, home, AwsMarket(), expect_s)


def _find_advice(preview: Preview, home: Path) -> Advice:
    from batchyard.cost import advice
    from batchyard.cost.market import AwsMarket

    return advice.advise(preview.plan, home, AwsMarket())


def _print_cost(cost: PlanCost | None, advice: Advice | None, *, with_cost: bool) -> None:
    if cost:
        lines = render_cost.estimate_lines(cost) if with_cost else []
        click.echo("\n".join(["", *(lines or [render_cost.estimate_line(cost)])]))
    if advice:
        click.echo("\n".join(["", *render_cost.advice_lines(advice)]))


def _print(preview: Preview, *, with_commands: bool, with_reasons: bool) -> None:
    lines = render.plan_lines(preview.plan, preview.command_counts)
    # A retry is ordered as its run was, and earlier runs are not looked at.
    if preview.prepared is not None and not preview.command_counts:
        lines += render.expectation_lines(preview.expectations, preview.prepared.slots)
    click.echo("\n".join(lines))
    if with_commands:
        click.echo("\n".join(["", *render.command_lines(preview.commands, with_reasons)]))
    for line in render.request_lines(preview.requests):
        click.echo(line)
