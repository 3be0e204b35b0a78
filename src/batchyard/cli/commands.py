"""`batchyard commands`."""

from __future__ import annotations

import click

from batchyard import command_records
from batchyard.batch.jobs import JobState
from batchyard.cli.options import (
    example,
    find_run,
    home_option,
    json_option,
    print_json,
    run_argument,
    run_env_option,
)
from batchyard.cli.tables import table
from batchyard.command_records import Command
from batchyard.errors import InputError
from batchyard.units import format_memory

_MAX_TEXT_LENGTH = 60
_KIB_PER_MIB = 1024


@click.command(
    epilog=example(
        "batchyard commands last",
        "batchyard commands last --failed",
        "batchyard commands last train --sort seconds",
        "batchyard commands last --csv > commands.csv",
    )
)
@run_argument
@click.argument("step", metavar="[STEP]", required=False)
@click.option(
    "--failed", is_flag=True, help="List only commands that failed and are not tried again."
)
@click.option(
    "--sort",
    "order",
    type=click.Choice(command_records.ORDERS),
    default="number",
    show_default=True,
    help="Order: by number, longest first, most memory first, or by start.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@run_env_option
@home_option
@json_option
def command(
    run: str,
    step: str | None,
    failed: bool,
    order: str,
    as_csv: bool,
    env: str | None,
    home: str | None,
    as_json: bool,
) -> int:
    """List the commands of a run that have ended, with exit code, time and memory.

    RUN is an id, the beginning of an id, or `last`. With STEP, only the commands of this step. A
    command has its number in the list of its step, from 0; a step without a list has one command
    for each child.
    """
    if as_csv and as_json:
        raise InputError("--csv and --json exclude each other", hint="give one of them")
    record = find_run(home, run, env)
    commands = command_records.list_commands(record, step, failed_only=failed, order=order)
    if as_json:
        print_json([command_records.to_json(command) for command in commands])
    elif as_csv:
        click.echo(command_records.to_csv(commands), nl=False)
    elif commands:
        headings = ("command", "exit", "seconds", "attempts", "child", "host", "cpu", "memory", "")
        rows = [_to_row(command) for command in commands]
        click.echo("\n".join(table(headings, rows, frozenset(range(1, 8)))))
    else:
        message = "no command has failed" if failed else "no command has ended"
        click.echo(f"{message} in run {record.run_id}", err=True)
    return 0


def _to_row(command: Command) -> tuple[str, ...]:
    detail = command.detail
    exit_code = "-" if detail.exit_code is None else str(detail.exit_code)
    if detail.state is JobState.FAILED:
        exit_code = click.style(exit_code, fg="red")
    duration_s = detail.duration_s
    memory_mib = detail.peak_memory_kib // _KIB_PER_MIB
    return (
        f"{detail.step}:{detail.number}",
        exit_code,
        "-" if duration_s is None else f"{duration_s:.1f}",
        str(detail.attempts),
        str(detail.index),
        detail.host or "-",
        f"{detail.cpu_s:.1f}",
        format_memory(memory_mib) if memory_mib else "-",
        _shorten(command.text),
    )


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    if len(line) <= _MAX_TEXT_LENGTH:
        return line
    return f"{line[: _MAX_TEXT_LENGTH - 3]}..."
