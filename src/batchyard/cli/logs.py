"""`batchyard logs`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable

import click

from batchyard import runs
from batchyard.cli.options import example, home_of, home_option, run_argument
from batchyard.engines.base import LogChunk, RunState
from batchyard.engines.local.engine import LocalEngine
from batchyard.errors import BadInput
from batchyard.plan import Plan

_FOLLOW_EVERY_S = 0.2


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
@home_option
def command(run: str, child: str | None, failed: bool, follow: bool, home: str | None) -> int:
    """Show what the children of a run wrote, byte for byte: all of them, a step's, or one child's.

    Where there are several, a line `==> step:index <==` stands above each.
    """
    record = runs.load(home_of(home), run)
    step, index = _parsed(child, record.plan)
    engine = record.open_engine()
    printer = _Printer(with_headings=index is None and sum(job.size for job in record.plan.jobs) > 1)
    try:
        while True:
            is_over = engine.run_state is not RunState.RUNNING or engine.holder is None
            printer.show(engine.logs(step, index, failed_only=failed))
            if not follow or is_over:
                break
            time.sleep(_FOLLOW_EVERY_S)
    finally:
        engine.close()
    if not printer.has_shown and not failed:
        _explain_silence(engine, step, index)
    return 0


class _Printer:
    def __init__(self, *, with_headings: bool) -> None:
        self._with_headings = with_headings
        self._last: tuple[str, int, int] | None = None
        self._at_line_start = True
        self.has_shown = False

    def show(self, chunks: Iterable[LogChunk]) -> None:
        out = sys.stdout.buffer
        for chunk in chunks:
            self.has_shown = True
            key = (chunk.step, chunk.index, chunk.attempt)
            if self._with_headings and key != self._last:
                attempt = f" (attempt {chunk.attempt})" if chunk.attempt > 1 else ""
                gap = "" if self._at_line_start else "\n"
                out.write(f"{gap}==> {chunk.step}:{chunk.index}{attempt} <==\n".encode())
            self._last = key
            out.write(chunk.data)
            self._at_line_start = chunk.data.endswith(b"\n")
        out.flush()


def _parsed(child: str | None, plan: Plan) -> tuple[str | None, int | None]:
    if child is None:
        return None, None
    step, colon, index = child.partition(":")
    steps = [job.step for job in plan.jobs]
    if step not in steps:
        raise BadInput(f"the run has no step {step!r}", hint=f"its steps are: {', '.join(steps)}")
    if not colon:
        return step, None
    job = plan.job(step)
    known = range(job.size) if job.indices is None else job.indices
    if not index.isdigit() or int(index) not in known:
        raise BadInput(
            f"step {step!r} has no child {index!r} in this run",
            hint=f"its children are {known[0]} to {known[-1]}",
        )
    return step, int(index)


def _explain_silence(engine: LocalEngine, step: str | None, index: int | None) -> None:
    what = "the run" if step is None else step if index is None else f"{step}:{index}"
    click.echo(f"{what} has written nothing", err=True)
