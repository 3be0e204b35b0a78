"""The command group. Commands are imported when they are used, so that `batchyard --version` starts at once."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

import batchyard
from batchyard.errors import BatchyardError, PipelineFileError

#: command -> its module in this folder, in the order of `--help`
COMMANDS = {
    "init": "init",
    "validate": "validate",
    "plan": "plan",
    "run": "run",
    "runs": "runs",
    "status": "status",
    "logs": "logs",
    "stop": "stop",
    "retry": "retry",
    "resume": "resume",
    "report": "report",
    "clean": "clean",
    "submit": "submit",
    "fetch": "fetch",
    "bench": "bench",
    "image": "image",
    "deploy": "deploy",
    "diff": "diff",
    "outputs": "outputs",
    "environments": "environments",
    "destroy": "destroy",
    "template": "template",
    "doctor": "doctor",
    "emulate": "emulate",
    "completion": "completion",
    "execute": "execute",
}

_ONE_LINERS = {
    "init": "Make a small, working pipeline folder to start from.",
    "validate": "Show every mistake in a pipeline file at once.",
    "plan": "Show what `run` would do, without doing it.",
    "run": "Run a pipeline, or a plain list of commands.",
    "runs": "List the runs of this folder, newest first.",
    "status": "Show a run's steps, and its first failures.",
    "logs": "Show the output of a run's children.",
    "stop": "Stop a run, or one step of it.",
    "retry": "Run again only what failed or never ran.",
    "resume": "Go on with a run whose process died.",
    "report": "Write one HTML page about a run.",
    "clean": "Delete old runs with their logs.",
    "submit": "Submit jobs to AWS Batch from plain JSON.",
    "fetch": "Download what a run on AWS has made.",
    "bench": "Measure the same work on CPU and GPU.",
    "deploy": "Make or update an environment on AWS.",
    "diff": "Show what `deploy` would change.",
    "outputs": "Show what an environment's stacks have made.",
    "environments": "List the environments that `--env` can name.",
    "destroy": "Delete an environment's stacks.",
    "template": "Print a CloudFormation template.",
    "doctor": "Say why a job is stuck, and whether a node is right.",
    "image": "Write, build and push container images for steps.",
    "emulate": "Serve the API of AWS Batch here, and run the jobs.",
    "completion": "Print the completion script of a shell.",
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_ONE_LINERS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"batchyard.cli.{COMMANDS[cmd_name]}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], _ONE_LINERS, 1)
            hint = (
                f"Did you mean '{near[0]}'?" if near else "`batchyard --help` lists the commands."
            )
            ctx.fail(f"No such command '{args[0]}'. {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # From the table and not from the commands, which would import every one of them.
        with formatter.section("Commands"):
            formatter.write_dl(list(_ONE_LINERS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: batchyard init demo && cd demo && batchyard run pipeline.yaml",
)
@click.version_option(batchyard.__version__, message="batchyard %(version)s")
@click.option("-v", "--verbose", is_flag=True, help="Show a traceback with an error.")
@click.pass_context
def cli(ctx: click.Context, verbose: bool) -> None:
    """Run a list of commands, some of them for GPUs, and have them done."""
    ctx.obj = {"verbose": verbose}


def main(args: Sequence[str] | None = None) -> None:
    """Runs the command and exits with its code: the one place where errors become sentences."""
    _open_closed_streams()
    arguments = list(sys.argv[1:] if args is None else args)
    is_verbose = arguments[:1] in (["-v"], ["--verbose"])
    try:
        code = cli.main(arguments, prog_name="batchyard", standalone_mode=False)
    except click.ClickException as exc:
        exc.show()
        sys.exit(2)
    except click.exceptions.Abort:
        sys.exit(130)
    except BatchyardError as exc:
        _show(exc, is_verbose)
        sys.exit(exc.exit_code)
    except BrokenPipeError:
        # Whoever read our output has seen enough, as `| head` does. Python must not complain again on exit.
        _quiet_stdout()
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as exc:
        # Nobody should meet this; whoever does gets a sentence, and the traceback for the asking.
        if is_verbose:
            raise
        print(f"batchyard: a bug in batchyard: {type(exc).__name__}: {exc}", file=sys.stderr)
        print(
            "  please report it with what `batchyard -v ...` prints; nothing recorded is lost",
            file=sys.stderr,
        )
        sys.exit(3)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _quiet_stdout()
    sys.exit(code if isinstance(code, int) else 0)


def _show(exc: BatchyardError, is_verbose: bool) -> None:
    if is_verbose:
        import traceback

        traceback.print_exception(exc)
    # A mistake begins with its place, so that editors can jump to it.
    head = "" if isinstance(exc, PipelineFileError) else "batchyard: "
    print(f"{head}{exc.message}", file=sys.stderr)
    if exc.hint:
        print(f"  {exc.hint}", file=sys.stderr)


def _open_closed_streams() -> None:
    """`2>&-` closes stderr: the next file that is opened would take its number, and our words for its content."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
    sys.stdin = sys.stdin or open(0)
    sys.stdout = sys.stdout or open(1, "w")
    sys.stderr = sys.stderr or open(2, "w")


def _quiet_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
