"""Options, questions and output that the commands about stacks share."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from batchyard.cli.options import account_options, pairs
from batchyard.cli.tables import table
from batchyard.errors import InputError
from batchyard.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.live import Live

    from batchyard.aws.cloudformation import CloudFormation
    from batchyard.aws.holdings import Holding
    from batchyard.infra.changes import Change
    from batchyard.infra.events import Progress, Step

    F = TypeVar("F", bound=Callable[..., Any])
else:
    F = TypeVar("F")

_MARKS = {
    "add": ("+", "green"),
    "change": ("~", "yellow"),
    "replace": ("!", "red"),
    "remove": ("-", "red"),
}
_VERB_COLOURS = {"created": "green", "changed": "yellow", "deleted": "yellow", "failed": "red"}
#: Interval of progress messages if the output is not a terminal.
_PROGRESS_INTERVAL_S = 30.0


def environment_option(function: F) -> F:
    """Add --env, required: a command that changes an environment has no default."""
    return click.option(
        "--env",
        required=True,
        metavar="NAME",
        help="Name of the environment; its stacks are named NAME-TEMPLATE.",
    )(account_options(function))


def set_option(function: F) -> F:
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="PARAMETER=VALUE",
        help="Set a parameter of a template. Other parameters keep their values. May be repeated.",
    )(function)


def tag_option(function: F) -> F:
    return click.option(
        "--tag",
        "tags",
        multiple=True,
        metavar="NAME=VALUE",
        help="Tag the stacks and their resources. Earlier tags stay. May be repeated.",
    )(function)


def params_option(function: F) -> F:
    return click.option(
        "--params",
        "params",
        metavar="FILE",
        help="YAML file with `parameters:` and `tags:` of the environment. --set and --tag win.",
    )(function)


def read_settings(
    params: str | None, settings: Sequence[str], tags: Sequence[str]
) -> tuple[dict[str, str], dict[str, str], set[str]]:
    """Return parameters and tags of --params, --set and --tag, and the parameters of the file."""
    from batchyard.infra import catalogue, parameter_file

    content = parameter_file.read(Path(params)) if params else parameter_file.ParameterFile()
    own_tags = pairs(tuple(tags), like="team=vision", flag="--tag")
    catalogue.check_tags(own_tags)
    own_settings = pairs(tuple(settings), like="GpuSpotMaxvCpus=192")
    return (
        {**content.parameters, **own_settings},
        {**content.tags, **own_tags},
        set(content.parameters) - set(own_settings),
    )


def yes_option(function: F) -> F:
    return click.option("--yes", is_flag=True, help="Answer every question with yes.")(function)


@contextmanager
def require_region(environment: str) -> Iterator[None]:
    """Name the environment and the remedy in the error for a missing region."""
    from batchyard.aws.session import NoRegionError

    try:
        yield
    except NoRegionError as exc:
        raise NoRegionError(
            f"no AWS region is set, so the stacks of environment {environment!r} cannot be found",
            hint="set AWS_REGION, or for the endpoint on this machine, paste the lines that"
            " `batchyard emulate` prints",
        ) from exc


def introduce(environment: str, aws: CloudFormation) -> None:
    with require_region(environment):
        account, region = aws.account(), aws.region
    click.echo(f"environment {environment} in account {account}, region {region}", err=True)


class Terminal:
    """The Dialog of infra.stacks: plain lines on stderr, and live progress on a terminal."""

    def __init__(
        self, *, says_yes: bool = False, offers_all: bool = False, changes_to_stdout: bool = False
    ) -> None:
        self._says_yes = says_yes
        self._offers_all = offers_all
        self._changes_to_stdout = changes_to_stdout
        self._live: LiveEvents | None = None
        self._next_progress_s = time.monotonic() + _PROGRESS_INTERVAL_S

    def say(self, text: str) -> None:
        self._print(text)

    def ask(self, question: str) -> bool:
        if self._says_yes:
            return True
        choices = "[y]es, [a]ll that follow too, [N]o" if self._offers_all else "[y/N]"
        click.echo(f"{question} {choices} ", err=True, nl=False)
        answer = sys.stdin.readline()
        if not sys.stdin.isatty():
            click.echo("", err=True)
        if not answer:
            raise InputError(
                "the question was not answered: stdin has ended",
                hint="--yes answers every question with yes",
            )
        word = answer.strip().lower()
        self._says_yes = self._offers_all and word in ("a", "all")
        return self._says_yes or word in ("y", "yes")

    def show_changes(
        self, stack: str, changes: Sequence[Change], parameters: Mapping[str, tuple[str, str]]
    ) -> None:
        for line in change_lines(stack, changes, parameters):
            click.echo(line, err=not self._changes_to_stdout)

    def show_events(self, stack: str, steps: Sequence[Step], progress: Progress) -> None:
        if self._live is None and sys.stderr.isatty() and progress.running:
            self._live = LiveEvents(stack, progress)
        for step in steps:
            self._print(step_line(step))
        if self._live is None and progress.running and time.monotonic() > self._next_progress_s:
            self._next_progress_s = time.monotonic() + _PROGRESS_INTERVAL_S
            running = ", ".join(running_lines(progress, time.time()))
            self._print(f"  still in progress: {running}")

    def show_end(self, stack: str, status: str, duration_s: float) -> None:
        self.close()
        is_good = status in ("CREATE_COMPLETE", "UPDATE_COMPLETE", "DELETE_COMPLETE")
        styled = click.style(status, fg="green" if is_good else "red")
        self._print(f"{stack}: {styled} after {format_duration(duration_s)}")

    def close(self) -> None:
        """Remove the live progress; the printed lines stay."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print(self, line: str) -> None:
        if self._live is not None:
            self._live.say(line)
            return
        # The reader may have closed the pipe, as `2>&1 | head` does: the change continues.
        with suppress(BrokenPipeError):
            click.echo(line, err=True)


class LiveEvents:
    """Live progress on a terminal: the resources being created or deleted, and for how long."""

    def __init__(self, stack: str, progress: Progress) -> None:
        from rich.console import Console
        from rich.live import Live

        self._stack = stack
        self._progress = progress
        self._live: Live = Live(
            console=Console(stderr=True),
            get_renderable=self._draw,
            refresh_per_second=2,
            transient=True,
        )
        self._live.start()

    def _draw(self) -> Any:
        from rich.text import Text

        lines = running_lines(self._progress, time.time()) or [self._stack]
        return Text("\n".join(f"  ... {line}" for line in lines), style="dim")

    def say(self, line: str) -> None:
        from rich.text import Text

        self._live.console.print(Text.from_ansi(line))

    def stop(self) -> None:
        with suppress(OSError):  # the terminal may be gone
            self._live.stop()


# -- lines ----------------------------------------------------------------------------------------


def change_lines(
    stack: str, changes: Sequence[Change], parameters: Mapping[str, tuple[str, str]]
) -> list[str]:
    from batchyard.infra.changes import summarize

    summary = summarize(changes) or "no resource changes, only outputs or parameters"
    lines = [f"{stack}: {summary}"]
    lines += [f"  {name}: {old} -> {new}" for name, (old, new) in parameters.items()]
    width = max((len(change.name) for change in changes), default=0)
    for change in changes:
        mark, colour = _MARKS[change.action.value]
        text = f"  {mark} {change.name:{width}}  {change.kind}{_change_notes(change)}"
        lines.append(click.style(text, fg=colour))
        lines += [f"      {detail}" for detail in change.details]
    permissions = [change.name for change in changes if change.is_about_permissions]
    if permissions:
        lines.append(f"  [IAM]: permissions change with {', '.join(permissions)}")
    return lines


def _change_notes(change: Change) -> str:
    notes = ["IAM"] if change.is_about_permissions else []
    notes += ["replaced"] if change.action.value == "replace" else []
    notes += ["may be replaced"] if change.may_replace else []
    return f"  [{', '.join(notes)}]" if notes else ""


def step_line(step: Step) -> str:
    duration = format_duration(step.duration_s) if step.duration_s is not None else ""
    verb = click.style(f"{step.verb:9}", fg=_VERB_COLOURS.get(step.verb))
    reason = f": {step.reason}" if step.reason and step.verb != "cancelled" else ""
    return f"  {duration:>6}  {verb}  {step.name} ({step.kind}){reason}"


def running_lines(progress: Progress, now_s: float) -> list[str]:
    return [
        f"{name} ({kind}) {format_duration(max(0, round(now_s - start_s)))}"
        for name, (start_s, kind) in progress.running.items()
    ]


def holding_lines(holdings: Iterable[tuple[str, Holding]]) -> list[str]:
    rows = [
        (stack, f"{holding.kind} {holding.name}", holding_text(holding))
        for stack, holding in holdings
    ]
    return [f"  {line}" for line in table(("stack", "what", "holds"), rows)] if rows else []


def holding_text(holding: Holding) -> str:
    nouns = {
        "bucket": ("object", "objects"),
        "repository": ("image", "images"),
        "queue": ("job that is not over", "jobs that are not over"),
        "log group": ("log stream", "log streams"),
        "service": ("task that it keeps running", "tasks that it keeps running"),
        "cluster": ("task that runs", "tasks that run"),
    }
    noun = nouns[holding.kind][0 if holding.count == 1 else 1]
    prefix = "more than " if holding.is_more else ""
    count = f"{prefix}{holding.count:,} {noun}"
    size = show_bytes(holding.size_bytes) if holding.size_bytes else ""
    return f"{count}, {size}" if size else count


def show_bytes(count: int) -> str:
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
