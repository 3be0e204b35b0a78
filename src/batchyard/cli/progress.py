"""Progress of a run while it executes, on stderr: a live table on a terminal, else plain lines."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from batchyard.batch.jobs import JobState
from batchyard.cli.progress_table import Pace, count_of, overall_line, progress_lines
from batchyard.engines.base import AttemptDetail, JobDetail
from batchyard.plan import Plan
from batchyard.progress import count_work, total_work
from batchyard.status import StepStatus, explain_failure, step_statuses
from batchyard.units import pluralize, show_controls

if TYPE_CHECKING:
    from rich.live import Live

#: A shorter run ends before a live table is of use, and rich takes 0.1 s to import.
_LIVE_AFTER_S = 0.3
_REFRESH_S = 0.2
_PLAIN_EVERY_S = 10.0
_MAX_FAILURES_PER_STEP = 5
#: Running steps that have a line of their own every ten seconds.
_MAX_STEP_LINES = 5
#: For terminals whose encoding has no lines.
_ASCII = str.maketrans("━─…", "#-~")
#: Width of the overall line where there is no terminal.
_PLAIN_WIDTH = 100


def watcher_for(plan: Plan, *, quiet: bool = False) -> ProgressLines | LiveTable | Silent:
    """Return the display for stderr: none if ``quiet``, a table for a terminal, else lines."""
    if quiet:
        return Silent()
    order = [job.step for job in plan.jobs]
    return LiveTable(order) if sys.stderr.isatty() else ProgressLines(order)


class Silent:
    """No display: for --json, and for a process that executes a detached run."""

    def jobs_changed(self, jobs: Sequence[JobDetail]) -> None: ...

    def attempt_failed(self, attempt: AttemptDetail) -> None: ...

    def note(self, text: str) -> None: ...

    def close(self) -> None: ...


class ProgressLines:
    """A line when a step starts or ends or an attempt fails, and every ten seconds."""

    def __init__(self, order: Sequence[str] = (), clock: Callable[[], float] = time.monotonic):
        """``order``: the names of the steps as the pipeline has them. ``clock``: in seconds."""
        self._clock = clock
        self._order = {name: number for number, name in enumerate(order)}
        self._steps: dict[str, StepStatus] = {}
        #: When the display first saw the run, and the work that was done then.
        self._began_s = clock()
        self._done_before: int | None = None
        self._states: dict[str, JobState] = {}
        self._started_steps: set[str] = set()
        self._failures: Counter[str] = Counter()
        self._next_counts_s = self._began_s + _PLAIN_EVERY_S

    def jobs_changed(self, jobs: Sequence[JobDetail]) -> None:
        for step in self._update(jobs):
            self._print_change(step)
        if self._clock() >= self._next_counts_s:
            self._next_counts_s = self._clock() + _PLAIN_EVERY_S
            self._print_counts()

    def _update(self, jobs: Sequence[JobDetail]) -> list[StepStatus]:
        """Take the new values of steps, and return them in the order of the pipeline."""
        changed = sorted(step_statuses(jobs), key=self._position)
        self._steps.update((step.name, step) for step in changed)
        if self._done_before is None:
            self._done_before = total_work(changed).done
        return changed

    def _position(self, step: StepStatus) -> int:
        return self._order.get(step.name, len(self._order))

    def _ordered_steps(self) -> list[StepStatus]:
        return sorted(self._steps.values(), key=self._position)

    def _pace(self, steps: Sequence[StepStatus]) -> Pace:
        done = total_work(steps).done - (self._done_before or 0)
        return Pace(done, self._clock() - self._began_s)

    def _print_counts(self) -> None:
        steps = self._ordered_steps()
        self.print_line(overall_line(steps, self._pace(steps), _PLAIN_WIDTH))
        running = [step for step in steps if step.running]
        if len(steps) > 1:
            for step in running[:_MAX_STEP_LINES]:
                self.print_line(f"{step.name}: {_counts(step)}")
        if len(running) > _MAX_STEP_LINES:
            count = len(running) - _MAX_STEP_LINES
            self.print_line(f"{pluralize(count, 'more step')} running")

    def attempt_failed(self, attempt: AttemptDetail) -> None:
        self._failures[attempt.step] += 1
        count = self._failures[attempt.step]
        if count <= _MAX_FAILURES_PER_STEP:
            child = f"{attempt.step}:{attempt.index} attempt {attempt.attempt}"
            retry = "" if attempt.state else "; retrying"
            reason = show_controls(explain_failure(attempt))
            self.print_line(click.style(f"{child} failed: {reason}{retry}", fg="red"))
        elif count == _MAX_FAILURES_PER_STEP + 1:
            self.print_line(
                f"{attempt.step}: further failures are not printed; see `batchyard status`"
            )

    def note(self, text: str) -> None:
        self.print_line(text)

    def print_line(self, line: str) -> None:
        # The reader of stderr may have ended, as with `2>&1 | head`. The run continues.
        with suppress(OSError):
            click.echo(line, err=True)

    def close(self) -> None: ...

    def _print_change(self, step: StepStatus) -> None:
        if step.state is self._states.get(step.name, JobState.PENDING):
            return
        self._states[step.name] = step.state
        if step.state.is_terminal:
            reason = f": {step.reason}" if step.state is JobState.FAILED and step.reason else ""
            self.print_line(f"{step.name}: {step.state.value} {_counts(step)}{reason}")
        elif step.state is JobState.RUNNING and step.name not in self._started_steps:
            self._started_steps.add(step.name)
            self.print_line(f"{step.name}: started, {count_of(count_work(step))}")


class LiveTable(ProgressLines):
    """What is done of the run, and a table of its steps, redrawn in place.

    Failures are printed above the table.
    """

    def __init__(self, order: Sequence[str] = (), clock: Callable[[], float] = time.monotonic):
        super().__init__(order, clock)
        self._next_draw_s = self._began_s + _LIVE_AFTER_S
        self._live: Live | None = None
        #: lines from the time before the table is drawn
        self._waiting_lines: list[str] = []

    def jobs_changed(self, jobs: Sequence[JobDetail]) -> None:
        self._update(jobs)
        now_s = self._clock()
        is_over = all(step.ended_ms is not None for step in self._steps.values())
        if now_s < self._next_draw_s and not (is_over and self._live):
            return
        self._next_draw_s = now_s + _REFRESH_S
        if self._live is None and not is_over:
            self._live = self._start_table()
        if self._live is not None:
            self._draw(self._live)

    def _draw(self, live: Live) -> None:
        from rich.text import Text

        steps = self._ordered_steps()
        width, height = live.console.size
        lines = progress_lines(steps, self._pace(steps), int(time.time() * 1000), width, height)
        text = "\n".join(lines)
        if live.console.options.ascii_only:
            text = text.translate(_ASCII)
        live.update(Text.from_ansi(text, no_wrap=True), refresh=True)

    def note(self, text: str) -> None:
        if self._live is None:
            ProgressLines.print_line(self, text)
        else:
            self.print_line(text)

    def _start_table(self) -> Live:
        from rich.console import Console
        from rich.live import Live

        live = self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
        live.start()
        for line in self._waiting_lines:
            self.print_line(line)
        return live

    def print_line(self, line: str) -> None:
        if self._live is None:
            self._waiting_lines.append(line)
        else:
            from rich.text import Text

            self._live.console.print(Text.from_ansi(line))

    def close(self) -> None:
        if self._live is not None:
            with suppress(OSError):  # the terminal may be closed
                self._live.stop()
        else:
            for line in self._waiting_lines:
                super().print_line(line)


def _counts(step: StepStatus) -> str:
    work = count_work(step)
    succeeded = step.commands.succeeded if step.commands else step.succeeded
    parts = [f"{succeeded}/{work.total} succeeded"]
    if work.failed:
        parts.append(f"{work.failed} failed")
    if step.running:
        parts.append(f"{step.running} running")
    return ", ".join(parts)
