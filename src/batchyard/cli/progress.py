"""Watching a run while it executes: a live table on a terminal, plain lines elsewhere. Both write to stderr."""

from __future__ import annotations

import sys
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from batchyard.batch.jobs import JobState
from batchyard.embedded.loop import Watcher
from batchyard.embedded.runner import Task
from batchyard.embedded.store import AttemptRow, JobRow
from batchyard.engines.local.reading import attempt_detail, job_detail
from batchyard.plan import Plan
from batchyard.status import StepStatus, explained, step_status

if TYPE_CHECKING:
    from rich.live import Live

#: a short run is over before a live table would be of use, and rich takes 0.1 s to import
_LIVE_AFTER_S = 0.3
_REFRESH_S = 0.2
_PLAIN_EVERY_S = 10.0
_FAILURES_SHOWN = 5
_STEPS_SHOWN = 30


def watcher_for(plan: Plan, *, quiet: bool = False) -> ProgressLines | LiveTable | Silent:
    if quiet:
        return Silent()
    return LiveTable(plan) if sys.stderr.isatty() else ProgressLines(plan)


class Silent(Watcher):
    """For --json, and for an engine of its own process."""

    def on_tick(self, changed: list[JobRow]) -> None: ...

    def on_failure(self, task: Task, row: AttemptRow) -> None: ...

    def close(self) -> None: ...


class ProgressLines(Watcher):
    """A line when a step begins, ends or fails a child, and one every ten seconds."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._steps: dict[str, StepStatus] = {}
        self._states: dict[str, JobState] = {}
        self._begun: set[str] = set()
        self._failures: Counter[str] = Counter()
        self._next_news = time.monotonic() + _PLAIN_EVERY_S

    def on_tick(self, changed: list[JobRow]) -> None:
        for row in changed:
            step = self._steps[row.step] = step_status([job_detail(row)])
            self._tell_change(step)
        if time.monotonic() >= self._next_news:
            self._next_news = time.monotonic() + _PLAIN_EVERY_S
            for step in self._steps.values():
                if step.running:
                    self.say(f"{step.name}: {_counts(step)}")

    def on_failure(self, task: Task, row: AttemptRow) -> None:
        self._failures[task.step] += 1
        shown = self._failures[task.step]
        if shown <= _FAILURES_SHOWN:
            job = JobRow(task.job_number, task.job_id, task.step, 1, "", "", (), 0, 0)
            why = explained(attempt_detail(row, job, self._plan.job(task.step)))
            more = "" if row.state else "; it will be tried again"
            self.say(
                click.style(
                    f"{task.step}:{task.index_in_step} attempt {task.attempt} failed: {why}{more}",
                    fg="red",
                )
            )
        elif shown == _FAILURES_SHOWN + 1:
            self.say(f"{task.step}: more failures are not shown here; see `batchyard status`")

    def say(self, line: str) -> None:
        # Whoever read this may have gone, as `2>&1 | head` does: the run goes on without a listener.
        with suppress(OSError):
            click.echo(line, err=True)

    def close(self) -> None: ...

    def _tell_change(self, step: StepStatus) -> None:
        before = self._states.get(step.name, JobState.PENDING)
        if step.state is before:
            return
        self._states[step.name] = step.state
        if step.state.is_terminal:
            reason = f": {step.reason}" if step.state is JobState.FAILED and step.reason else ""
            self.say(f"{step.name}: {step.state.value} {_counts(step)}{reason}")
        elif step.state is JobState.RUNNING and step.name not in self._begun:
            self._begun.add(step.name)
            self.say(
                f"{step.name}: started, {step.size} {'child' if step.size == 1 else 'children'}"
            )


class LiveTable(ProgressLines):
    """Steps with bars, counts, rate and time left, redrawn in place; failures scroll by above it."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._began = time.monotonic()
        self._next_draw = self._began + _LIVE_AFTER_S
        self._live: Live | None = None
        self._waiting_lines: list[str] = []

    def on_tick(self, changed: list[JobRow]) -> None:
        for row in changed:
            self._steps[row.step] = step_status([job_detail(row)])
        now = time.monotonic()
        is_over = all(step.ended_ms is not None for step in self._steps.values())
        if now < self._next_draw and not (is_over and self._live):
            return
        self._next_draw = now + _REFRESH_S
        if self._live is None and not is_over:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start()
            for line in self._waiting_lines:
                self.say(line)
        if self._live is not None:
            self._live.update(
                live_table(list(self._steps.values()), int(time.time() * 1000)), refresh=True
            )

    def say(self, line: str) -> None:
        if self._live is None:
            self._waiting_lines.append(line)
        else:
            from rich.text import Text

            self._live.console.print(Text.from_ansi(line))

    def close(self) -> None:
        if self._live is not None:
            with suppress(OSError):  # the terminal may be gone
                self._live.stop()
        else:
            for line in self._waiting_lines:
                super().say(line)


def live_table(steps: list[StepStatus], now_ms: int) -> Any:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    if len(steps) > _STEPS_SHOWN:
        # Of many steps, those where something happens.
        steps = [step for step in steps if step.running or step.failed][:_STEPS_SHOWN]

    grid = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("step", "", "done", "failed", "running", "rate", "left"):
        grid.add_column(name, justify="left" if name in ("step", "") else "right", no_wrap=True)
    for step in steps:
        done = step.succeeded + step.failed
        style = {"FAILED": "red", "SUCCEEDED": "green"}.get(
            step.state.value, "cyan" if step.running else "dim"
        )
        bar_style = "red" if step.failed else "green"
        grid.add_row(
            f"[{style}]{step.name}[/]",
            ProgressBar(
                total=step.size,
                completed=done,
                width=28,
                complete_style=bar_style,
                finished_style=bar_style,
            ),
            f"{done}/{step.size}",
            f"[red]{step.failed}[/]" if step.failed else "",
            str(step.running or ""),
            *_rate(step, done, now_ms),
        )
    return grid


def _rate(step: StepStatus, done: int, now_ms: int) -> tuple[str, str]:
    """Children a second, and the time that the rest will take at that rate."""
    if step.started_ms is None or not done or step.size == 1:
        return "", ""
    seconds = max(0.001, ((step.ended_ms or now_ms) - step.started_ms) / 1000)
    rate = done / seconds
    shown = f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min"
    if step.ended_ms is not None:
        return shown, ""
    left = int((step.size - done) / rate)
    return (
        shown,
        f"{left // 3600}:{left % 3600 // 60:02}:{left % 60:02}"
        if left >= 3600
        else f"{left // 60}:{left % 60:02}",
    )


def _counts(step: StepStatus) -> str:
    parts = [f"{step.succeeded}/{step.size} succeeded"]
    if step.failed:
        parts.append(f"{step.failed} failed")
    if step.running:
        parts.append(f"{step.running} running")
    return ", ".join(parts)
