"""The page: a run's status, its ended attempts and a few facts become one HTML document. Pure.

The document asks for nothing from anywhere: styles and drawings are inside it, it has no script, and it tells the
browser to allow none, should a log line ever get past the escaping.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from batchyard.batch.jobs import Resources
from batchyard.engines.base import AttemptDetail, RunState
from batchyard.plan import Plan
from batchyard.report import figures
from batchyard.report.amounts import NONE, count, counted, duration, moment, spaced_memory
from batchyard.report.durations import durations
from batchyard.report.failures import failures, retries
from batchyard.report.figures import StepFigures
from batchyard.report.markup import Content, Markup, tag
from batchyard.report.style import CSS
from batchyard.report.tables import Totals, steps_table
from batchyard.report.timeline import timeline
from batchyard.status import RunStatus, iso

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_TONES = {
    RunState.SUCCEEDED: "good",
    RunState.FAILED: "bad",
    RunState.STOPPED: "warn",
    RunState.RUNNING: "busy",
}


@dataclass(frozen=True, slots=True)
class About:
    """What the engine does not say about a run."""

    plan: Plan
    #: what the run could use
    #: of this machine; None where the run was elsewhere
    capacity: Resources | None
    runner: str
    workspace: str
    #: when the page was made
    now_ms: int
    version: str
    file: str | None = None
    retry_of: str | None = None
    #: (step, index) -> the commands of a child that failed
    commands: Mapping[tuple[str, int], Sequence[str]] = field(default_factory=dict)


def page(status: RunStatus, attempts: Iterable[AttemptDetail], about: About) -> str:
    """``attempts`` is read once, and need not fit in memory."""
    tallies = figures.tallied(status.steps, attempts)
    begin_ms = _begin_ms(status, tallies.values(), about.now_ms)
    until_ms = max(begin_ms, figures.last_sign_ms(status, tallies.values(), about.now_ms))
    slots = {
        job.step: figures.slots_of(job, about.capacity) for job in about.plan.jobs if about.capacity
    }
    steps = [
        figures.step_figures(s, tallies[s.name], slots.get(s.name), until_ms) for s in status.steps
    ]
    totals = Totals((until_ms - begin_ms) / 1000, _utilisation(steps, about, until_ms - begin_ms))
    is_over = status.state is not RunState.RUNNING
    body = (
        _definitions(),
        _header(status, steps, about, totals),
        tag(
            "main",
            tag(
                "section",
                tag("h2", "Steps"),
                steps_table(steps, totals, is_over=is_over),
                _explanation(),
            ),
            _timeline(steps, begin_ms, until_ms, is_open=not is_over),
            _durations(steps),
            failures(status.run, steps, status.failures, about.commands),
            retries(steps),
        ),
        tag("footer", f"Made by batchyard {about.version} at {moment(about.now_ms)}."),
    )
    return "<!doctype html>\n" + _document(status.run, body) + "\n"


def _document(title: str, body: Content) -> str:
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("link", rel="icon", href="data:,"),
        tag("title", f"{title} - batchyard"),
        tag("style", Markup(CSS)),
    )
    return tag("html", head, "\n", tag("body", body), lang="en")


def _definitions() -> Markup:
    """The hatch of what failed: seen also where colours are not."""
    area = tag("rect", width=5, height=5)
    stroke = tag("path", d="M-1 6L6 -1M-1 1L1 -1M4 6L6 4")
    hatch = tag(
        "pattern", area, stroke, id="hatch", width=5, height=5, patternUnits="userSpaceOnUse"
    )
    return tag("svg", tag("defs", hatch), width=0, height=0, class_="defs", aria_hidden="true")


def _header(
    status: RunStatus, steps: Sequence[StepFigures], about: About, totals: Totals
) -> Markup:
    word, tone = status.state.value, _TONES[status.state]
    if status.is_interrupted:
        word, tone = "INTERRUPTED", "warn"
    title = tag(
        "div", tag("h1", status.run), tag("span", word, class_=f"badge {tone}"), class_="title"
    )
    return tag(
        "header",
        title,
        tag("p", _lead(status, steps), class_="lead"),
        _facts(status, steps, about, totals),
    )


def _lead(status: RunStatus, steps: Sequence[StepFigures]) -> Content:
    size, good, bad = (
        sum(getattr(step.status, name) for step in steps)
        for name in ("size", "succeeded", "failed")
    )
    parts = [f"{count(good)} of {counted(size, 'child', 'children')} succeeded"]
    failed: Content = None
    if bad:
        failed = (", ", tag("a", f"{count(bad)} failed", href="#failures"))
    if status.is_interrupted:
        command = tag("code", f"batchyard resume {status.run}")
        return (parts, failed, ". Its process died; go on with it: ", command)
    if status.state is RunState.RUNNING:
        running = sum(step.status.running for step in steps)
        return (parts, failed, f", {count(running)} running when this page was made.")
    return (parts, failed, ".")


def _facts(status: RunStatus, steps: Sequence[StepFigures], about: About, totals: Totals) -> Markup:
    capacity = about.capacity
    machine = (
        [counted(capacity.vcpus, "vCPU"), spaced_memory(capacity.memory_mib)] if capacity else []
    )
    if capacity and capacity.gpus:
        machine.append(counted(capacity.gpus, "GPU"))
    facts: list[tuple[str, Content, bool]] = [
        ("Pipeline", status.pipeline, False),
        ("Started", _time(status.started_ms), False),
        ("Ended", _time(status.ended_ms), False),
        ("Duration", duration(totals.wall_s), False),
        ("Capacity", ", ".join(machine) or None, False),
        ("CPU time", duration(sum(step.tally.cpu_s for step in steps)), False),
        ("Engine", status.engine, False),
        ("Runner", about.runner, False),
        ("File", about.file, True),
        ("Workspace", about.workspace, True),
        ("Retry of", about.retry_of, True),
    ]
    return tag(
        "dl",
        [
            tag("div", tag("dt", name), tag("dd", value), class_="wide" if is_wide else None)
            for name, value, is_wide in facts
            if value is not None
        ],
        class_="facts",
    )


def _time(at_ms: int | None) -> Markup | str:
    return NONE if at_ms is None else tag("time", moment(at_ms), datetime=iso(at_ms))


def _explanation() -> Markup:
    return tag(
        "p",
        "Durations are of each child's last attempt; CPU time and efficiency count all attempts. Efficiency is the "
        "share of a step's slots that were busy from its first start to its last end, a slot being room for one "
        "child were the step alone; for the run, it is the share of the vCPUs that were given to children. Peak "
        "memory is that of the largest process; the system counts it from the size of whoever started the process, "
        "so that small ones all show the engine's own.",
        class_="note",
    )


def _timeline(
    steps: Sequence[StepFigures], begin_ms: int, until_ms: int, *, is_open: bool
) -> Markup:
    if not any(step.tally.count for step in steps):
        said = "No attempt has ended yet." if is_open else "Nothing was started."
        return tag("section", tag("h2", "Timeline"), tag("p", said, class_="note"))
    return tag(
        "section", tag("h2", "Timeline"), timeline(steps, begin_ms, until_ms, is_open=is_open)
    )


def _durations(steps: Sequence[StepFigures]) -> Markup:
    chart = durations(steps)
    if not chart:
        return chart
    note = "Each child's last attempt, on a logarithmic scale; the upright line is the median."
    return tag(
        "section",
        tag("h2", "Durations"),
        tag("div", chart, class_="scroll"),
        tag("p", note, class_="note"),
    )


def _begin_ms(status: RunStatus, tallies: Iterable[figures.Tally], now_ms: int) -> int:
    first = min((min(tally.starts_ms) for tally in tallies if tally.count), default=now_ms)
    return first if status.started_ms is None else min(first, status.started_ms)


def _utilisation(steps: Sequence[StepFigures], about: About, wall_ms: int) -> float | None:
    vcpus = {job.step: job.resources.vcpus for job in about.plan.jobs}
    used = sum(step.tally.busy_ms * vcpus.get(step.name, 0) for step in steps)
    had = about.capacity.vcpus * wall_ms if about.capacity else 0
    return min(1.0, used / had) if had else None
