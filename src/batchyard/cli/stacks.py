"""What the commands about stacks have in common: questions, changes as lines, and events while they happen."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

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
#: without a terminal, a word now and then that it still goes on
_STILL_EVERY_S = 30.0


def environment_option(function: F) -> F:
    """Of the commands that make and unmake an environment: there is no default that could be meant."""
    return click.option(
        "--env", required=True, metavar="NAME", help="The environment: stacks are named NAME-..."
    )(function)


def set_option(function: F) -> F:
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="PARAMETER=VALUE",
        help="A template's parameter; what was set once stays set. May be repeated.",
    )(function)


def yes_option(function: F) -> F:
    return click.option("--yes", is_flag=True, help="Answer every question with yes.")(function)


@contextmanager
def region_needed(environment: str) -> Iterator[None]:
    """Where nothing says in which region: these commands take it from nowhere but the profile."""
    from batchyard.aws.session import NoRegionError

    try:
        yield
    except NoRegionError as exc:
        raise NoRegionError(
            f"nothing says in which region to look for the stacks of environment {environment!r}",
            hint="set AWS_REGION, or for the endpoint on this machine, paste the lines that `batchyard emulate` prints",
        ) from exc


def introduce(environment: str, aws: CloudFormation) -> None:
    with region_needed(environment):
        account, region = aws.account(), aws.region
    click.echo(f"environment {environment} in account {account}, region {region}", err=True)


class Terminal:
    """The front of infra.stacks: plain lines on stderr; on a terminal also what is going on at the moment."""

    def __init__(
        self, *, says_yes: bool = False, offers_all: bool = False, changes_to_stdout: bool = False
    ) -> None:
        self._says_yes = says_yes
        self._offers_all = offers_all
        self._changes_to_stdout = changes_to_stdout
        self._live: LiveEvents | None = None
        self._still = time.monotonic() + _STILL_EVERY_S

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
                "the question needs an answer", hint="--yes answers every question with yes"
            )
        word = answer.strip().lower()
        self._says_yes = self._offers_all and word in ("a", "all")
        return self._says_yes or word in ("y", "yes")

    def show_changes(
        self, stack: str, found: Sequence[Change], parameters: Mapping[str, tuple[str, str]]
    ) -> None:
        for line in change_lines(stack, found, parameters):
            click.echo(line, err=not self._changes_to_stdout)

    def show_events(self, stack: str, done: Sequence[Step], progress: Progress) -> None:
        if self._live is None and sys.stderr.isatty() and progress.running:
            self._live = LiveEvents(stack, progress)
        for step in done:
            self._print(step_line(step))
        if self._live is None and progress.running and time.monotonic() > self._still:
            self._still = time.monotonic() + _STILL_EVERY_S
            self._print(f"  still going on: {', '.join(running(progress, time.time()))}")

    def show_end(self, stack: str, status: str, duration_s: float) -> None:
        self.close()
        is_good = status in ("CREATE_COMPLETE", "UPDATE_COMPLETE", "DELETE_COMPLETE")
        shown = click.style(status, fg="green" if is_good else "red")
        self._print(f"{stack}: {shown} after {format_duration(duration_s)}")

    def close(self) -> None:
        """The moving part goes; the lines stay."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print(self, line: str) -> None:
        if self._live is not None:
            self._live.say(line)
            return
        # Whoever read this may have gone, as `2>&1 | head` does: the change goes on without a listener.
        with suppress(BrokenPipeError):
            click.echo(line, err=True)


class LiveEvents:
    """What is being made or deleted at the moment, and since when."""

    def __init__(self, stack: str, progress: Progress) -> None:
        from rich.console import Console
        from rich.live import Live

        self._stack = stack
        self._progress = progress
        self._live: Live = Live(
            console=Console(stderr=True),
            get_renderable=self._drawn,
            refresh_per_second=2,
            transient=True,
        )
        self._live.start()

    def _drawn(self) -> Any:
        from rich.text import Text

        going_on = running(self._progress, time.time())
        return Text(
            "\n".join(f"  ... {line}" for line in going_on) or f"  ... {self._stack}", style="dim"
        )

    def say(self, line: str) -> None:
        from rich.text import Text

        self._live.console.print(Text.from_ansi(line))

    def stop(self) -> None:
        with suppress(OSError):  # the terminal may be gone
            self._live.stop()


# -- lines ----------------------------------------------------------------------------------------------------------


def change_lines(
    stack: str, found: Sequence[Change], parameters: Mapping[str, tuple[str, str]]
) -> list[str]:
    from batchyard.infra import changes

    lines = [
        f"{stack}: {changes.counts(found) or 'no resource changes, only outputs or parameters'}"
    ]
    lines += [f"  {name}: {before} -> {after}" for name, (before, after) in parameters.items()]
    width = max((len(one.name) for one in found), default=0)
    for one in found:
        mark, colour = _MARKS[one.action.value]
        notes = ["IAM"] if one.is_about_permissions else []
        notes += ["replaced"] if one.action.value == "replace" else []
        notes += ["may be replaced"] if one.may_replace else []
        tail = f"  [{', '.join(notes)}]" if notes else ""
        lines.append(click.style(f"  {mark} {one.name:{width}}  {one.kind}{tail}", fg=colour))
        lines += [f"      {detail}" for detail in one.details]
    permissions = [one.name for one in found if one.is_about_permissions]
    if permissions:
        lines.append(f"  [IAM]: who may do what changes with {', '.join(permissions)}")
    return lines


def step_line(step: Step) -> str:
    took = format_duration(step.duration_s) if step.duration_s is not None else ""
    verb = click.style(f"{step.verb:9}", fg=_VERB_COLOURS.get(step.verb))
    why = f": {step.reason}" if step.reason and step.verb != "cancelled" else ""
    return f"  {took:>6}  {verb}  {step.name} ({step.kind}){why}"


def running(progress: Progress, now_s: float) -> list[str]:
    return [
        f"{name} ({kind}) {format_duration(max(0, round(now_s - begun_s)))}"
        for name, (begun_s, kind) in progress.running.items()
    ]


def holding_lines(holdings: Iterable[tuple[str, Holding]]) -> list[str]:
    rows = [(stack, f"{held.kind} {held.name}", holding_text(held)) for stack, held in holdings]
    return [f"  {line}" for line in table(("stack", "what", "holds"), rows)] if rows else []


def holding_text(held: Holding) -> str:
    nouns = {
        "bucket": ("object", "objects"),
        "repository": ("image", "images"),
        "queue": ("job that is not over", "jobs that are not over"),
        "log group": ("", ""),
    }
    noun = nouns[held.kind][0 if held.count == 1 else 1]
    count = f"{'more than ' if held.is_more else ''}{held.count:,} {noun}" if noun else ""
    size = show_bytes(held.size_bytes) if held.size_bytes else ""
    return ", ".join(filter(None, (count, size)))


def show_bytes(count: int) -> str:
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
