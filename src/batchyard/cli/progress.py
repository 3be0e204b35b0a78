"""Progress of a run while it executes, on stderr: a live table on a terminal, else plain lines."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from batchyard.batch.jobs import JobState
from batchyard.engines.base import AttemptDetail, JobDetail
from batchyard.status import StepStatus, explain_failure, step_statuses
from batchyard.units import pluralize

if TYPE_CHECKING:
    from rich.live import Live

#: A shorter run ends before a live table is of use, and rich takes 0.1 s to import.
_LIVE_AFTER_S = 0.3
_REFRESH_S = 0.2
_PLAIN_EVERY_S = 10.0
_MAX_FAILURES_PER_STEP = 5
_MAX_STEPS = 30


def watcher_for(*, quiet: bool = False) -> ProgressLines | LiveTable | Silent:
    """Return the display for stderr: none if ``quiet``, a table for a terminal, else lines."""
    if quiet:
        return Silent()
    return LiveTable() if sys.stderr.isatty() else ProgressLines()


class Silent:
    """No display: for --json, and for a process that executes a detached run."""

    def jobs_changed(self, jobs: Sequence[JobDetail]) -> None: ...

    def attempt_failed(self, attempt: AttemptDetail) -> None: ...

    def note(self, text: str) -> None: ...

    def close(self) -> None: ...


class ProgressLines:
    """A line when a step starts or ends or an attempt fails, and every ten seconds."""

    def __init__(self) -> None:
        self._steps: dict[str, StepStatus] = {}
        self._states: dict[str, JobState] = {}
        self._started_steps: set[str] = set()
        self._failures: Counter[str] = Counter()
        self._next_counts_s = time.monotonic() + _PLAIN_EVERY_S

    def jobs_changed(self, jobs: Sequence[JobDetail]) -> None:
        for step in step_statuses(jobs):
            self._steps[step.name] = step
            self._print_change(step)
        if time.monotonic() >= self._next_counts_s:
            self._next_counts_s = time.monotonic() + _PLAIN_EVERY_S
            for step in self._steps.values():
                if step.running:
                    self.print_line(f"{step.name}: {_counts(step)}")

    def attempt_failed(self, attempt: AttemptDetail) -> None:
        self._failures[attempt.step] += 1
        count = self._failures[attempt.step]
        if count <= _MAX_FAILURES_PER_STEP:
            child = f"{attempt.step}:{attempt.index} attempt {attempt.attempt}"
            retry = "" if attempt.state else "; retrying"
            self.print_line(
                click.style(f"{child} failed: {explain_failure(attempt)}{retry}", fg="red")
            )
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
            self.print_line(f"{step.name}: started, {pluralize(step.size, 'child', 'children')}")


class LiveTable(ProgressLines):
    """A table of the steps with bars, counts, rate and remaining time, redrawn in place.

    Failures are printed above the table.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next_draw_s = time.monotonic() + _LIVE_AFTER_S
        self._live: Live | None = None
        #: lines from the time before the table is drawn
        self._waiting_lines: list[str] = []

    def jobs_changed(self, jobs: Sequence[JobDetail]) -> None:
        for step in step_statuses(jobs):
            self._steps[step.name] = step
        now_s = time.monotonic()
        is_over = all(step.ended_ms is not None for step in self._steps.values())
        if now_s < self._next_draw_s and not (is_over and self._live):
            return
        self._next_draw_s = now_s + _REFRESH_S
        if self._live is None and not is_over:
            self._live = self._start_table()
        if self._live is not None:
            table = live_table(list(self._steps.values()), int(time.time() * 1000))
            self._live.update(table, refresh=True)

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


def live_table(steps: list[StepStatus], now_ms: int) -> Any:
    """Return the rich table of the steps; of many steps, only those that run or failed."""
    from rich.table import Table

    if len(steps) > _MAX_STEPS:
        steps = [step for step in steps if step.running or step.failed][:_MAX_STEPS]
    grid = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("step", "", "done", "failed", "running", "rate", "left"):
        grid.add_column(name, justify="left" if name in ("step", "") else "right", no_wrap=True)
    for step in steps:
        grid.add_row(*_table_cells(step, now_ms))
    return grid


def _table_cells(step: StepStatus, now_ms: int) -> list[Any]:
    from rich.progress_bar import ProgressBar

    ended = step.succeeded + step.failed
    idle_style = "cyan" if step.running else "dim"
    name_style = {"FAILED": "red", "SUCCEEDED": "green"}.get(step.state.value, idle_style)
    bar_style = "red" if step.failed else "green"
    bar = ProgressBar(
        total=step.size,
        completed=ended,
        width=28,
        complete_style=bar_style,
        finished_style=bar_style,
    )
    return [
        f"[{name_style}]{step.name}[/]",
        bar,
        f"{ended}/{step.size}",
        f"[red]{step.failed}[/]" if step.failed else "",
        str(step.running or ""),
        *_rate_cells(step, ended, now_ms),
    ]


def _rate_cells(step: StepStatus, ended: int, now_ms: int) -> tuple[str, str]:
    """Return the rate of ended children, and the remaining time at that rate."""
    if step.started_ms is None or not ended or step.size == 1:
        return "", ""
    elapsed_s = max(0.001, ((step.ended_ms or now_ms) - step.started_ms) / 1000)
    rate = ended / elapsed_s
    rate_text = f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min"
    if step.ended_ms is not None:
        return rate_text, ""
    minutes, seconds = divmod(int((step.size - ended) / rate), 60)
    hours, minutes = divmod(minutes, 60)
    clock = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
    return rate_text, clock


def _counts(step: StepStatus) -> str:
    parts = [f"{step.succeeded}/{step.size} succeeded"]
    if step.failed:
        parts.append(f"{step.failed} failed")
    if step.running:
        parts.append(f"{step.running} running")
    return ", ".join(parts)
