"""The `batchyard` command: its subcommands by group, and errors as messages and exit codes.

A subcommand is imported when it is used, so that `batchyard --version` starts at once.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import TextIO

import click

import batchyard
from batchyard.errors import BatchyardError, OperationalError, PipelineFileError

#: heading -> command -> its summary in `--help`. A command is the module of this folder so named.
COMMAND_GROUPS = {
    "Pipeline files": {
        "init": "Create a small working pipeline to start from.",
        "validate": "Show all mistakes in a pipeline file.",
        "plan": "Show what `run` would do, without running anything.",
    },
    "Runs, on this machine or on AWS": {
        "run": "Run a pipeline, or a plain list of commands.",
        "runs": "List the runs of this folder, newest first.",
        "status": "Show the steps of a run and its first failures.",
        "commands": "List the commands of a run that have ended.",
        "logs": "Show the output of a run's children.",
        "scale": "Change how many children work on a dynamic step.",
        "stop": "Stop a run, or one step of it.",
        "retry": "Start a new run of what failed or never ran.",
        "resume": "Resume a run whose process died.",
        "report": "Write an HTML page about a run.",
        "ui": "Show runs in a browser, live.",
        "clean": "Delete old runs and their logs.",
    },
    "AWS Batch": {
        "submit": "Submit jobs to AWS Batch from plain JSON.",
        "fetch": "Download the output files of a run on AWS.",
        "image": "Write, build and push container images for steps.",
    },
    "Services on ECS": {
        "service": "Keep a container up on the cluster of an environment.",
    },
    "AWS environments": {
        "deploy": "Create or update an environment on AWS.",
        "diff": "Show what `deploy` would change.",
        "outputs": "Show the queues, bucket and roles of an environment.",
        "environments": "List the environments that `--env` accepts.",
        "destroy": "Delete the stacks of an environment.",
        "template": "Print a CloudFormation template.",
    },
    "AWS Batch on localhost": {
        "emulate": "Serve the API of AWS Batch here, and run its jobs.",
    },
    "Cost": {
        "prices": "List instance types that can run a step, with prices.",
        "cost": "Show what a run has cost, by step: used, idle and lost.",
    },
    "Diagnosis": {
        "doctor": "Find out why a job is stuck or a host does not work.",
    },
    "Benchmark": {
        "bench": "Measure the same work on CPU and GPU.",
    },
    "Shell": {
        "completion": "Print the completion script of a shell.",
    },
}
_COMMANDS = [name for group in COMMAND_GROUPS.values() for name in group]
#: batchyard starts these commands itself
_HIDDEN_COMMANDS = ["execute"]


class LazyGroup(click.Group):
    """A command group that imports a subcommand when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS + _HIDDEN_COMMANDS:
            return None
        module = importlib.import_module(f"batchyard.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and name not in _COMMANDS + _HIDDEN_COMMANDS and not name.startswith("-"):
            from difflib import get_close_matches

            matches = get_close_matches(name, _COMMANDS, 1)
            hint = "`batchyard --help` lists the commands."
            if matches:
                hint = f"Did you mean '{matches[0]}'?"
            ctx.fail(f"No such command '{name}'. {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click would import every command to read its help.
        width = max(map(len, _COMMANDS))
        for heading, commands in COMMAND_GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:{width}}", line) for name, line in commands.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: batchyard init demo && cd demo && batchyard run pipeline.yaml",
)
@click.version_option(batchyard.__version__, message="batchyard %(version)s")
@click.option("-v", "--verbose", is_flag=True, help="Print a traceback with an error.")
@click.pass_context
def cli(ctx: click.Context, verbose: bool) -> None:
    """Run pipelines of CPU and GPU commands, on this machine or on AWS Batch."""
    ctx.obj = {"verbose": verbose}
    _require_current_folder()


def _require_current_folder() -> None:
    """Raise OperationalError if the current folder has been deleted."""
    try:
        os.getcwd()
    except FileNotFoundError as exc:
        raise OperationalError(
            "the current folder no longer exists", hint="change to another folder with `cd`"
        ) from exc


def main(args: Sequence[str] | None = None) -> None:
    """Run a command, print an error as a message, and exit with the command's exit code."""
    _open_closed_streams()
    code = _run(list(sys.argv[1:] if args is None else args))
    for stream in (sys.stdout, sys.stderr):
        _flush_or_discard(stream)
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    try:
        code = cli.main(arguments, prog_name="batchyard", standalone_mode=False)
    except BrokenPipeError:
        return 0  # the reader of the output has ended, as `| head` does
    except (KeyboardInterrupt, click.exceptions.Abort):
        return 130
    except Exception as exc:
        return _report(exc, is_verbose=arguments[:1] in (["-v"], ["--verbose"]))
    return code if isinstance(code, int) else 0


def _report(exc: Exception, is_verbose: bool) -> int:
    """Print an error to stderr and return the exit code. With -v, an internal error is raised."""
    if isinstance(exc, click.ClickException):
        exc.show()
        return 2
    if isinstance(exc, BatchyardError):
        _print_error(exc, is_verbose)
        return exc.exit_code
    if is_verbose:
        raise exc
    print(f"batchyard: a bug in batchyard: {type(exc).__name__}: {exc}", file=sys.stderr)
    print(
        "  please report it with the output of `batchyard -v ...`; nothing recorded is lost",
        file=sys.stderr,
    )
    return 3


def _print_error(exc: BatchyardError, is_verbose: bool) -> None:
    if is_verbose:
        import traceback

        traceback.print_exception(exc)
    # A mistake begins with its file and line, so that editors can jump to it.
    prefix = "" if isinstance(exc, PipelineFileError) else "batchyard: "
    print(f"{prefix}{exc.message}", file=sys.stderr)
    if exc.hint:
        print(f"  {exc.hint}", file=sys.stderr)


def _open_closed_streams() -> None:
    """Open stdin, stdout and stderr on /dev/null where they are closed.

    After `2>&-` the next opened file would get descriptor 2, and error messages as its content.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
    sys.stdin = sys.stdin or open(0)
    sys.stdout = sys.stdout or open(1, "w")
    sys.stderr = sys.stderr or open(2, "w")


def _flush_or_discard(stream: TextIO) -> None:
    """Write what a stream has buffered, or drop it where its reader has ended.

    Python exits with code 120 if it cannot write the rest of a stream when it ends.
    """
    try:
        stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
