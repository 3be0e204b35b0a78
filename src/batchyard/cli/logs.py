"""`batchyard logs`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click

from batchyard import command_records, wait_reasons
from batchyard.cli import waiting
from batchyard.cli.options import (
    duration,
    example,
    find_run,
    home_option,
    parse_child,
    run_argument,
    run_env_option,
)
from batchyard.cli.render import child_name
from batchyard.engines.base import (
    Backoff,
    LogChunk,
    Overview,
    RunEngine,
    RunRecord,
    RunState,
    Wait,
)
from batchyard.engines.busy_service import PatientCaller
from batchyard.errors import BatchyardError, InputError
from batchyard.folder import home_flag
from batchyard.quick_dataclasses import dataclass

_PATIENCE_S = 30


@click.command(
    epilog=example(
        "batchyard logs last",
        "batchyard logs last reconstruct:17",
        "batchyard logs last --failed",
        "batchyard logs last --command reconstruct:4711",
        "batchyard logs last -f",
    )
)
@run_argument
@click.argument("child", metavar="[STEP[:INDEX]]", required=False)
@click.option(
    "--failed", is_flag=True, help="Show only children that failed and are not tried again."
)
@click.option(
    "--command",
    "command_name",
    metavar="COMMAND",
    help="Show only the output of one command that has ended: STEP:NUMBER, NUMBER in a run with one"
    " step, or the text of the command.",
)
@click.option("-f", "--follow", is_flag=True, help="Print new output until the run ends.")
@click.option(
    "--patience",
    callback=duration,
    metavar="TIME",
    help="With -f: time without output after which stderr says what the run waits for"
    f" (default: {_PATIENCE_S}s).",
)
@run_env_option
@home_option
def command(
    run: str,
    child: str | None,
    failed: bool,
    command_name: str | None,
    follow: bool,
    patience: int | None,
    env: str | None,
    home: str | None,
) -> int:
    """Show the output of a run's children: of all, of a step (STEP), or of one child (STEP:INDEX).

    RUN is an id, the beginning of an id, or `last`. If there are several children, a line
    with step and index is above the output of each.
    """
    if patience is not None and not follow:
        raise InputError("--patience needs -f", hint="add -f, or leave --patience out")
    if command_name is not None:
        if child or failed or follow:
            raise InputError(
                "--command shows one command that has ended",
                hint="leave STEP, --failed and -f out",
            )
        return _show_command(find_run(home, run, env), command_name)
    record = find_run(home, run, env)
    step, index = parse_child(child, record.plan)
    sizes = {job.step: job.step_size for job in record.plan.jobs}
    printer = _Printer(sizes, with_headings=index is None and sum(sizes.values()) > 1)
    follower = _Follower(record, step, patience) if follow else None
    missing = _show(record, printer, _Selection(step, index, failed), follower)
    if not missing and not printer.chunk_count:
        name = child or "the run"
        missing = f"{name} has written nothing"
        if failed:
            missing = f"no failed child of {name} has written anything"
    if missing:
        click.echo(missing, err=True)
    return 0


def _show_command(record: RunRecord, name: str) -> int:
    """Print the output of one command, byte for byte."""
    engine = record.open()
    try:
        command = command_records.find_command(record, engine, name)
        output = engine.log_reader.read_command(command)
    finally:
        engine.close()
    if not output:
        click.echo(f"command {command.step}:{command.number} has written nothing", err=True)
    sys.stdout.buffer.write(output)
    sys.stdout.buffer.flush()
    return 0


@dataclass(frozen=True, slots=True)
class _Selection:
    """Which children's output is shown; None for all steps, or all children of a step."""

    step: str | None
    index: int | None
    failed: bool


class _Follower:
    """Prints on stderr what a silent run waits for, and why following ends."""

    def __init__(self, record: RunRecord, step: str | None, patience_s: int | None) -> None:
        self._record = record
        self._step = step
        self._timer = waiting.ReminderTimer(patience_s or _PATIENCE_S, time.monotonic())
        self._flags = home_flag(record.folder, Path.cwd())
        self._chunk_count = 0

    def say_run_goes_on(self) -> None:
        name = f"{self._record.run_id}{self._flags}"
        _say(
            f"the run goes on without this command: `batchyard logs {name} -f` follows its output "
            "again"
        )

    def is_over(self, overview: Overview) -> bool:
        """Return whether no more output can come; print a line if the run is interrupted."""
        if overview.is_interrupted:
            name = f"{self._record.run_id}{self._flags}"
            click.echo(f"the run is INTERRUPTED: `batchyard resume {name}` continues it", err=True)
        return overview.state is not RunState.RUNNING or overview.is_interrupted

    def remind(self, engine: RunEngine, overview: Overview, chunk_count: int) -> None:
        """Print what the run waits for, if a reminder is due.

        ``chunk_count``: number of chunks printed since the beginning.
        """
        if chunk_count != self._chunk_count:
            self._chunk_count = chunk_count
            self._timer.restart(time.monotonic())
        elif self._timer.is_due(time.monotonic()):
            waits = self._find_waits(engine, overview)
            now_ms = int(time.time() * 1000)
            for line in wait_reasons.describe_waits(
                self._record.plan, overview.jobs, waits, self._step, now_ms, self._flags
            ):
                click.echo(line, err=True)

    def _find_waits(self, engine: RunEngine, overview: Overview) -> Sequence[Wait] | None:
        if overview.state is not RunState.RUNNING:
            return ()
        try:
            return engine.waits(overview.jobs)
        except BatchyardError:
            return ()  # a user who may not list jobs may still read logs


def _show(
    record: RunRecord, printer: _Printer, selection: _Selection, follower: _Follower | None
) -> str:
    """Print the logs. Return a sentence about output that is missing, or an empty text."""
    engine = record.open()
    try:
        if follower is not None:
            return _follow(engine, printer, selection, follower)
        reader = engine.log_reader
        chunks = reader.read(selection.step, selection.index, failed_only=selection.failed)
        printer.show(chunks)
        return reader.missing
    finally:
        engine.close()


def _follow(
    engine: RunEngine, printer: _Printer, selection: _Selection, follower: _Follower
) -> str:
    """As ``_show``, and print new output until the run ends."""
    reader, backoff = engine.log_reader, Backoff(engine.log_polling)
    step, index, failed = selection.step, selection.index, selection.failed
    is_running = False

    def print_new_output() -> Overview:
        nonlocal is_running
        # The state is read before the logs, so that the last output of the run is shown too.
        overview = engine.overview()
        is_running = overview.state is RunState.RUNNING and not overview.is_interrupted
        printer.show(reader.follow(overview.jobs, step, index, failed_only=failed))
        return overview

    caller = PatientCaller(_say)
    try:
        while True:
            overview = caller.call(print_new_output)
            if follower.is_over(overview):
                return reader.missing
            follower.remind(engine, overview, printer.chunk_count)
            counts = [job.counts for job in overview.jobs]
            time.sleep(backoff.next_delay_s((printer.chunk_count, counts)))
    except (KeyboardInterrupt, BatchyardError):
        if is_running:
            follower.say_run_goes_on()
        raise


def _say(text: str) -> None:
    click.echo(text, err=True)


class _Printer:
    """Writes chunks to stdout, with a heading where the child changes."""

    def __init__(self, sizes: Mapping[str, int], *, with_headings: bool) -> None:
        self._sizes = sizes
        self._with_headings = with_headings
        #: Step, index and attempt of the last chunk.
        self._last_key: tuple[str, int, int] | None = None
        self._at_line_start = True
        self.chunk_count = 0

    def show(self, chunks: Iterable[LogChunk]) -> None:
        out = sys.stdout.buffer
        for chunk in chunks:
            self.chunk_count += 1
            key = (chunk.step, chunk.index, chunk.attempt)
            if self._with_headings and key != self._last_key:
                attempt = f" (attempt {chunk.attempt})" if chunk.attempt > 1 else ""
                gap = "" if self._at_line_start else "\n"
                name = child_name(chunk.step, chunk.index, self._sizes[chunk.step])
                out.write(f"{gap}==> {name}{attempt} <==\n".encode())
            self._last_key = key
            out.write(chunk.data)
            self._at_line_start = chunk.data.endswith(b"\n")
        out.flush()
