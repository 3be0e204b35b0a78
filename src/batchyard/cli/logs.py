"""`batchyard logs`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping

import click

from batchyard.cli.options import env_option, example, find_run, home_option, run_argument
from batchyard.cli.render import child_name
from batchyard.engines.base import LogChunk, RunState
from batchyard.errors import BadInput
from batchyard.plan import Plan

_FOLLOW_EVERY_S = 0.2
#: each look is some calls of AWS's API
_FOLLOW_AWS_EVERY_S = 2.0


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
@env_option
@home_option
def command(run: str, child: str | None, failed: bool, follow: bool, env: str | None, home: str | None) -> int:
    """Show what the children of a run wrote, byte for byte: all of them, a step's, or one child's.

    Where there are several, a line `==> step:index <==` stands above each.
    """
    record = find_run(home, run, env)
    step, index = _parsed(child, record.plan)
    engine = record.open_engine()
    sizes = {job.step: job.step_size for job in record.plan.jobs}
    printer = _Printer(sizes, with_headings=index is None and sum(sizes.values()) > 1)
    try:
        while True:
            now = engine.overview() if follow else None
            is_over = now is None or now.state is not RunState.RUNNING or now.is_interrupted
            printer.show(engine.logs(step, index, failed_only=failed))
            if is_over:
                break
            time.sleep(_FOLLOW_EVERY_S if record.is_local else _FOLLOW_AWS_EVERY_S)
    finally:
        engine.close()
    if not printer.has_shown:
        what = child or "the run"
        click.echo(
            f"no failed child of {what} has written anything" if failed else f"{what} has written nothing", err=True
        )
    return 0


class _Printer:
    def __init__(self, sizes: Mapping[str, int], *, with_headings: bool) -> None:
        self._sizes = sizes
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
