"""`batchyard logs`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchyard import status
from batchyard.cli import waiting
from batchyard.cli.options import (
    duration,
    env_option,
    example,
    find_run,
    home_flag,
    home_option,
    run_argument,
)
from batchyard.cli.render import child_name
from batchyard.engines.base import LogChunk, Overview, RunEngine, RunState
from batchyard.errors import BatchyardError, InputError
from batchyard.plan import Plan
from batchyard.runs import Record

if TYPE_CHECKING:
    from batchyard.engines.aws.details import Wait

_FOLLOW_EVERY_S = 0.2
#: on AWS each look is some calls of its API: further and further apart while nothing happens
_FIRST_LOOK_S, _LAST_LOOK_S = 1.0, 10.0
_PATIENCE_S = 30


@click.command(
    epilog=example(
        "batchyard logs last",
        "batchyard logs last reconstruct:17",
        "batchyard logs last --failed",
        "batchyard logs last -f",
    )
)
@run_argument
@click.argument("child", metavar="[STEP[:INDEX]]", required=False)
@click.option("--failed", is_flag=True, help="Only children that failed for good.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run ends.")
@click.option(
    "--patience",
    callback=duration,
    metavar="TIME",
    help=f"With -f: after so long a silence, say on stderr what is waited for. Default {_PATIENCE_S}s.",
)
@env_option
@home_option
def command(
    run: str,
    child: str | None,
    failed: bool,
    follow: bool,
    patience: int | None,
    env: str | None,
    home: str | None,
) -> int:
    """Show what the children of a run wrote, byte for byte: all of them, a step's, or one child's.

    Where there are several, a line `==> step:index <==` stands above each.
    """
    if patience is not None and not follow:
        raise InputError("--patience is about following", hint="add -f, or leave --patience out")
    record = find_run(home, run, env)
    step, index = _parsed(child, record.plan)
    sizes = {job.step: job.step_size for job in record.plan.jobs}
    printer = _Printer(sizes, with_headings=index is None and sum(sizes.values()) > 1)
    show = _show_here if record.is_local else _show_from_aws
    missing = show(
        record,
        printer,
        _Wanted(step, index, failed),
        _Follower(record, step, patience) if follow else None,
    )
    if missing:
        click.echo(missing, err=True)
    elif not printer.shown:
        what = child or "the run"
        click.echo(
            f"no failed child of {what} has written anything"
            if failed
            else f"{what} has written nothing",
            err=True,
        )
    return 0


@dataclass(frozen=True, slots=True)
class _Wanted:
    step: str | None
    index: int | None
    failed: bool


class _Follower:
    """Tells on stderr what a run that is silent waits for, and why it is not followed any longer."""

    def __init__(self, record: Record, step: str | None, patience_s: int | None) -> None:
        self._record = record
        self._step = step
        self._quiet = waiting.Quiet(patience_s or _PATIENCE_S, time.monotonic())
        self._flags = home_flag(record, Path.cwd())
        self._shown = 0

    def is_over(self, now: Overview) -> bool:
        if now.is_interrupted:
            name = f"{self._record.run_id}{self._flags}"
            click.echo(
                f"the run is INTERRUPTED: `batchyard resume {name}` goes on with it", err=True
            )
        return now.state is not RunState.RUNNING or now.is_interrupted

    def look(self, engine: RunEngine, now: Overview, shown: int) -> None:
        """``shown``: how much was shown so far."""
        if shown != self._shown:
            self._shown = shown
            self._quiet.heard(time.monotonic())
        elif self._quiet.is_due(time.monotonic()):
            waits = None if self._record.is_local else self._waits(engine, now)
            at_ms = int(time.time() * 1000)
            for line in waiting.lines(
                self._record.plan, now.jobs, waits, self._step, at_ms, self._flags
            ):
                click.echo(line, err=True)

    def _waits(self, engine: RunEngine, now: Overview) -> Sequence[Wait]:
        try:
            return status.waits_for_hosts(self._record, engine, now)
        except BatchyardError:
            return ()  # who may not list jobs may still read logs


def _show_here(
    record: Record, printer: _Printer, wanted: _Wanted, follower: _Follower | None
) -> str:
    """Returns what could not be shown, in a sentence: nothing."""
    engine = record.open_local()
    try:
        while True:
            # Looked at first: what was written before the end is then shown too.
            now = engine.overview() if follower else None
            printer.show(engine.logs(wanted.step, wanted.index, failed_only=wanted.failed))
            if now is None or follower is None or follower.is_over(now):
                return ""
            follower.look(engine, now, printer.shown)
            time.sleep(_FOLLOW_EVERY_S)
    finally:
        engine.close()


def _show_from_aws(
    record: Record, printer: _Printer, wanted: _Wanted, follower: _Follower | None
) -> str:
    from batchyard.cloud import Patience

    engine = record.open_aws()
    reader = engine.log_reader
    patience = Patience(_FIRST_LOOK_S, _LAST_LOOK_S)
    if follower is None:
        printer.show(reader.read(wanted.step, wanted.index, failed_only=wanted.failed))
        return reader.misses
    while True:
        now = engine.overview()
        printer.show(reader.follow(now.jobs, wanted.step, wanted.index, failed_only=wanted.failed))
        if follower.is_over(now):
            return reader.misses
        follower.look(engine, now, printer.shown)
        time.sleep(patience.after((printer.shown, [job.counts for job in now.jobs])))


class _Printer:
    def __init__(self, sizes: Mapping[str, int], *, with_headings: bool) -> None:
        self._sizes = sizes
        self._with_headings = with_headings
        self._last: tuple[str, int, int] | None = None
        self._at_line_start = True
        #: chunks
        self.shown = 0

    def show(self, chunks: Iterable[LogChunk]) -> None:
        out = sys.stdout.buffer
        for chunk in chunks:
            self.shown += 1
            key = (chunk.step, chunk.index, chunk.attempt)
            if self._with_headings and key != self._last:
                attempt = f" (attempt {chunk.attempt})" if chunk.attempt > 1 else ""
                gap = "" if self._at_line_start else "\n"
                name = child_name(chunk.step, chunk.index, self._sizes[chunk.step])
                out.write(f"{gap}==> {name}{attempt} <==\n".encode())
            self._last = key
            out.write(chunk.data)
            self._at_line_start = chunk.data.endswith(b"\n")
        out.flush()


def _parsed(child: str | None, plan: Plan) -> tuple[str | None, int | None]:
    if child is None:
        return None, None
    step, colon, index = child.partition(":")
    plan.require_child(step, index if colon else None)
    return step, int(index) if colon else None
