"""`batchyard run`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from batchyard import engines, operations, status
from batchyard import plan as planning
from batchyard.cli import pipelines, progress, render, render_bill, single_command
from batchyard.cli.options import (
    example,
    home_option_for,
    json_option,
    print_json,
    sampling_option,
)
from batchyard.cli.run_results import EXIT_CODES, exit_code, find_recorded_bill
from batchyard.engines.base import PreparedRun, RunRecord, RunRequest, RunState
from batchyard.engines.busy_service import PatientCaller
from batchyard.errors import BatchyardError, InputError
from batchyard.folder import home_beside, home_flag

#: Key of the words behind `--`, in the context of click.
_WORDS = "batchyard.words"


class _RunCommand(click.Command):
    """A command whose words behind `--` are the words of another command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            position = args.index("--")
            ctx.meta[_WORDS] = tuple(args[position + 1 :])
            args = args[:position]
        rest = super().parse_args(ctx, args)
        has_source = ctx.params.get("file") is not None or _WORDS in ctx.meta
        if not has_source and not ctx.resilient_parsing:
            raise click.UsageError("Missing argument 'FILE', or a command behind '--'.", ctx)
        return rest


@click.command(
    cls=_RunCommand,
    epilog=example(
        "batchyard run pipeline.yaml",
        "batchyard run commands.txt -j 8",
        "seq 100 | sed 's/^/echo /' | batchyard run -",
        "batchyard run pipeline.yaml --set slices=128 --limit-cpus 8 --detach",
        "batchyard run commands.txt --gpus 1 --retries 2",
        "batchyard run pipeline.yaml --engine aws --env lab --detach",
        "batchyard run --set-env EPOCHS=3 -- python train.py --all",
        "batchyard run --engine ecs --env lab --image IMAGE --gpus 1 -- python train.py",
    ),
)
@click.argument("file", type=click.Path(), metavar="FILE | -- COMMAND...", required=False)
@click.option(
    "--detach",
    is_flag=True,
    help="Start the run in the background, or submit it to AWS; print its id and return.",
)
@pipelines.engine_flags
@pipelines.cap_flags
@sampling_option
@pipelines.pipeline_flags
@home_option_for(
    "The .batchyard folder, which is created if it does not exist (default: $BATCHYARD_HOME, or the"
    " one beside FILE)."
)
@json_option
def command(
    file: str | None,
    detach: bool,
    engine: str,
    env: str | None,
    on_demand: bool,
    spot: bool,
    max_cost: float | None,
    max_cost_action: str,
    is_sampled: bool | None,
    home: str | None,
    as_json: bool,
    **flags: Any,
) -> int:
    """Run a pipeline file, a plain list of commands, or one command, here or on AWS.

    FILE is a pipeline (.yaml, .yml or .json), or a plain list: any other file, with one shell
    command a line. `-` or a pipe, like <(...), is a list too; its run is recorded in the current
    folder. The commands of a list run at once, as many as fit, and go on after a failure.

    A COMMAND behind `--` runs alone. Its output is on stdout, and its exit code is that of `run`.

    Exit codes: 0 all jobs succeeded, 1 a job failed, 2 invalid input, 3 an error of the machine or
    of AWS, 130 stopped.
    """
    words: tuple[str, ...] | None = click.get_current_context().meta.get(_WORDS)
    source = _load_source(file, words, flags)
    pipelines.print_source_notes(source)
    request = RunRequest(
        plan=planning.make(source.pipeline, only=flags["only"], start_from=flags["start_from"]),
        pipeline=source.pipeline,
        home=home_beside(source.pipeline.folder, home),
        offer=source.offer,
        environment=env,
        on_demand=on_demand,
        spot=spot,
        max_cost_usd=max_cost,
        stops_at_cap=max_cost_action == "stop",
        detached=detach,
        is_sampled=is_sampled is not False,
    )
    loaded_engine = engines.load(engine)
    prepared = operations.prepare(loaded_engine, request)
    _print_estimate(prepared, request, engine)
    record, notes = operations.begin(loaded_engine, request, prepared)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    if words is not None and not (detach or as_json):
        click.echo(f"run {record.run_id}", err=True)
        return single_command.execute(record)
    return carry_out(record, detach=detach, as_json=as_json)


def _print_estimate(prepared: PreparedRun, request: RunRequest, engine: str) -> None:
    """Print what the run is likely to cost, if its hosts cost anything."""
    if prepared.environment is None:
        return
    from batchyard.cli import render_cost
    from batchyard.cost.plan_cost import cost_of_prepared

    # A run begins also where nobody knows its cost.
    with suppress(BatchyardError):
        usd = operations.find_max_cost(request)
        cost = cost_of_prepared(prepared, request.home, engine, asks_runs=False, max_cost_usd=usd)
        if cost is not None and not cost.is_unknown:
            click.echo(f"note: {render_cost.estimate_line(cost)}", err=True)


def _load_source(
    file: str | None, words: Sequence[str] | None, flags: Mapping[str, Any]
) -> pipelines.Source:
    """Return the pipeline of FILE, or of the words behind `--`. Raises InputError."""
    if file is not None and words is not None:
        raise InputError(
            f"there is both a file, {file}, and a command behind --", hint="leave one of them out"
        )
    if words is not None:
        return pipelines.load_command(words or ("",), flags)
    assert file is not None, "the arguments have one of the two"
    return pipelines.load_source(file, flags)


def carry_out(record: RunRecord, *, detach: bool, as_json: bool) -> int:
    """Execute a recorded run, or with ``detach`` only start it. Returns the exit code."""
    if not as_json:
        # The id is printed first: a run that cannot be started is resumed or stopped by it.
        with suppress(OSError):
            click.echo(f"run {record.run_id}", err=True)
    try:
        if detach:
            return _start(record, as_json)
        return _execute(record, as_json)
    except KeyboardInterrupt:
        return EXIT_CODES[RunState.STOPPED]


def _start(record: RunRecord, as_json: bool) -> int:
    watcher = progress.watcher_for(record.plan, quiet=as_json)
    try:
        operations.start(record, watcher.note)
    finally:
        watcher.close()
    if as_json:
        print_json(status.to_json(status.of_run(record)))
    else:
        click.echo(record.run_id)
    return 0


def _execute(record: RunRecord, as_json: bool) -> int:
    watcher = progress.watcher_for(record.plan, quiet=as_json)
    engine = record.open()
    try:
        try:
            operations.execute(record, engine, watcher)
        finally:
            watcher.close()
        caller = PatientCaller(_say, was_answered=True)
        final = caller.call(lambda: status.of_engine(record, engine))
        bill = find_recorded_bill(record, asks_prices=True)
    finally:
        engine.close()
    moved = operations.begin_fallback(record, _say) if final.state is RunState.FAILED else None
    if moved is not None:
        return carry_out(moved, detach=False, as_json=as_json)
    # The exit code says how the run ended, also where nobody reads the text any more.
    with suppress(OSError):
        if as_json:
            print_json(status.to_json(final) | ({"cost": bill.to_json()} if bill else {}))
        else:
            flags = home_flag(record.folder, Path.cwd())
            lines = render.status_lines(final, int(time.time() * 1000), flags)
            click.echo("\n".join([*lines, *render_bill.recorded_lines(bill, flags)]))
    return exit_code(final)


def _say(text: str) -> None:
    with suppress(OSError):
        click.echo(text, err=True)
