"""Make the HTML page about a run from its status, its ended attempts and a few facts. Pure.

The page loads nothing: it contains its styles and drawings, has no script, and forbids scripts to
the browser, in case a log line ever gets past the escaping.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from batchyard.batch.jobs import Resources
from batchyard.engines.base import AttemptDetail, RunState
from batchyard.plan import Plan
from batchyard.report import figures
from batchyard.report.amounts import (
    NONE,
    format_count,
    format_duration,
    format_mib,
    format_time,
)
from batchyard.report.costs import cost_section
from batchyard.report.durations import draw_durations
from batchyard.report.failures import failures_section, retries_section
from batchyard.report.figures import StepFigures
from batchyard.report.host_lanes import HostTimes, find_hosts
from batchyard.report.lane_chart import draw_hosts
from batchyard.report.markup import Content, Markup, tag
from batchyard.report.resources import resources_section
from batchyard.report.style import CSS
from batchyard.report.tables import Totals, steps_table
from batchyard.report.timeline import COLOURS, draw_timeline
from batchyard.sampling.samples import SampledStep
from batchyard.status import RunStatus, explain_excess, explain_moves, iso
from batchyard.units import pluralize

if TYPE_CHECKING:
    from batchyard.cost.run_bill import RunBill

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_TONES = {
    RunState.SUCCEEDED: "good",
    RunState.FAILED: "bad",
    RunState.STOPPED: "warn",
    RunState.RUNNING: "busy",
}


@dataclass(frozen=True, slots=True)
class About:
    """Facts about a run that are not in its status."""

    plan: Plan
    #: what the run could use of this machine; None if it ran elsewhere
    capacity: Resources | None
    runner: str
    workspace: str
    #: time at which the page is made
    now_ms: int
    version: str
    file: str | None = None
    retry_of: str | None = None
    #: (step, index) -> the commands of a child that failed
    commands: Mapping[tuple[str, int], Sequence[str]] = field(default_factory=dict)
    #: what the run has cost; None if it cost nothing
    cost: RunBill | None = None
    #: id of a host -> what is known of it
    hosts: Mapping[str, HostTimes] = field(default_factory=dict)
    #: step -> what its sampled attempts have used
    uses: Mapping[str, SampledStep] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Figures:
    """What the charts and tables show, from ``begin_ms`` to ``end_ms``."""

    steps: Sequence[StepFigures]
    begin_ms: int
    end_ms: int


def make_charts(status: RunStatus, attempts: Iterable[AttemptDetail], about: About) -> str:
    """Return a document with the charts of the page alone. ``attempts`` is read once."""
    drawn = _compute_figures(status, attempts, about)
    is_open = status.state is RunState.RUNNING
    body = (
        _definitions(),
        tag(
            "main",
            cost_section(about.cost),
            _timeline_section(drawn.steps, drawn.begin_ms, drawn.end_ms, is_open=is_open),
            _hosts_section(drawn, about, is_open=is_open),
            resources_section(about.uses, about.plan),
            _durations_section(drawn.steps),
        ),
    )
    return "<!doctype html>\n" + tag("html", tag("body", body), lang="en") + "\n"


def _compute_figures(
    status: RunStatus, attempts: Iterable[AttemptDetail], about: About
) -> _Figures:
    stats = figures.collect_stats(status.steps, attempts)
    begin_ms = figures.begin_ms(status, stats.values(), about.now_ms)
    end_ms = max(begin_ms, figures.end_ms(status, stats.values(), about.now_ms))
    slots = {
        job.step: figures.slots_of(job, about.capacity) for job in about.plan.jobs if about.capacity
    }
    steps = [
        figures.step_figures(step, stats[step.name], slots.get(step.name), end_ms)
        for step in status.steps
    ]
    return _Figures(steps, begin_ms, end_ms)


def make_page(status: RunStatus, attempts: Iterable[AttemptDetail], about: About) -> str:
    """Return the HTML page. ``attempts`` is read once and need not fit in memory."""
    drawn = _compute_figures(status, attempts, about)
    steps, begin_ms, end_ms = drawn.steps, drawn.begin_ms, drawn.end_ms
    totals = Totals((end_ms - begin_ms) / 1000, _utilisation(steps, about, end_ms - begin_ms))
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
                _notes_on_steps(),
            ),
            cost_section(about.cost),
            _timeline_section(steps, begin_ms, end_ms, is_open=not is_over),
            _hosts_section(drawn, about, is_open=not is_over),
            resources_section(about.uses, about.plan),
            _durations_section(steps),
            failures_section(status.run, steps, status.failures, about.commands),
            _memory_section(status),
            retries_section(steps),
        ),
        tag("footer", f"Made by batchyard {about.version} at {format_time(about.now_ms)}."),
    )
    return "<!doctype html>\n" + _make_document(status.run, body) + "\n"


def _make_document(title: str, body: Content) -> str:
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
    """Return the hatch of failed attempts, which is visible without colours."""
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
    size, succeeded, failed_count = (
        sum(getattr(step.status, name) for step in steps)
        for name in ("size", "succeeded", "failed")
    )
    parts = [f"{format_count(succeeded)} of {pluralize(size, 'child', 'children')} succeeded"]
    failed: Content = None
    if failed_count:
        failed = (", ", tag("a", f"{format_count(failed_count)} failed", href="#failures"))
    if status.is_interrupted:
        command = tag("code", f"batchyard resume {status.run}")
        return (parts, failed, f". Interrupted: {status.interruption}. To resume it: ", command)
    if status.state is RunState.RUNNING:
        running = sum(step.status.running for step in steps)
        return (parts, failed, f", {format_count(running)} running when this page was made.")
    return (parts, failed, ".")


def _facts(status: RunStatus, steps: Sequence[StepFigures], about: About, totals: Totals) -> Markup:
    facts: list[tuple[str, Content, bool]] = [
        ("Pipeline", status.pipeline, False),
        ("Started", _time_element(status.started_ms), False),
        ("Ended", _time_element(status.ended_ms), False),
        ("Duration", format_duration(totals.wall_s), False),
        ("Capacity", _format_capacity(about.capacity), False),
        ("CPU time", format_duration(sum(step.stats.cpu_s for step in steps)), False),
        ("Engine", status.engine, False),
        ("Runner", about.runner, False),
        ("File", about.file, True),
        ("Workspace", about.workspace, True),
        ("Retry of", about.retry_of, True),
        ("Cap", status.held or None, True),
        ("Spot", "; ".join(explain_moves(status)) or None, True),
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


def _format_capacity(capacity: Resources | None) -> str | None:
    if capacity is None:
        return None
    parts = [pluralize(capacity.vcpus, "vCPU"), format_mib(capacity.memory_mib)]
    if capacity.gpus:
        parts.append(pluralize(capacity.gpus, "GPU"))
    return ", ".join(parts)


def _time_element(at_ms: int | None) -> Markup | str:
    return NONE if at_ms is None else tag("time", format_time(at_ms), datetime=iso(at_ms))


def _notes_on_steps() -> Markup:
    return tag(
        "p",
        "Durations are those of each child's last attempt. CPU time and efficiency include all "
        "attempts. The efficiency of a step is the share of its slots that were busy from its "
        "first start to its last end; a slot is room for one child if no other step runs. The "
        "efficiency of the run is the share of its vCPUs that children had. Peak memory is that "
        "of the largest process, with the files that it maps, or that of all processes of a child "
        "in a sample, if it is more; the system starts to count at the size of the process that "
        "started it, so that all small processes show the size of the engine.",
        class_="note",
    )


def _timeline_section(
    steps: Sequence[StepFigures], begin_ms: int, end_ms: int, *, is_open: bool
) -> Markup:
    if not any(step.stats.count for step in steps):
        text = "No attempt has ended yet." if is_open else "Nothing was started."
        return tag("section", tag("h2", "Timeline"), tag("p", text, class_="note"))
    chart = draw_timeline(steps, begin_ms, end_ms, is_open=is_open)
    return tag("section", tag("h2", "Timeline"), chart)


def _hosts_section(drawn: _Figures, about: About, *, is_open: bool) -> Markup:
    """Return a lane for each host; nothing for a run whose hosts are not known."""
    hosts = find_hosts(drawn.steps, about.hosts, drawn.begin_ms, drawn.end_ms)
    if not hosts:
        return Markup()
    note = (
        "A lane is as long as its host was there, if that is known. Its colour is that of the step "
        "which had most of it; it is busy if as many attempts run as ever ran on it at once."
    )
    return tag(
        "section",
        tag("h2", "Hosts"),
        draw_hosts(hosts, drawn.begin_ms, drawn.end_ms, COLOURS, is_open=is_open),
        tag("p", note, class_="note"),
    )


def _durations_section(steps: Sequence[StepFigures]) -> Markup:
    chart = draw_durations(steps)
    if not chart:
        return chart
    note = "Each child's last attempt, on a logarithmic scale; the vertical line is the median."
    return tag(
        "section",
        tag("h2", "Durations"),
        tag("div", chart, class_="scroll"),
        tag("p", note, class_="note"),
    )


def _memory_section(status: RunStatus) -> Markup:
    """Return the section about children with too much memory, or nothing if there are none."""
    if not status.memory_excesses:
        return Markup()
    lines = [tag("li", f"{explain_excess(excess)}.") for excess in status.memory_excesses]
    return tag("section", tag("h2", "Memory"), tag("ul", lines, class_="plain"))


def _utilisation(steps: Sequence[StepFigures], about: About, wall_ms: int) -> float | None:
    """Return the share of the run's vCPU time that children had; None if it is unknown."""
    vcpus = {job.step: job.resources.vcpus for job in about.plan.jobs}
    used_ms = sum(step.stats.busy_ms * vcpus.get(step.name, 0) for step in steps)
    total_ms = about.capacity.vcpus * wall_ms if about.capacity else 0
    return min(1.0, used_ms / total_ms) if total_ms else None
