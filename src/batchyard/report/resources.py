"""Draw what children use of their hosts: a table of steps, and the series of an attempt. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from batchyard.batch.jobs import Resources
from batchyard.plan import Plan
from batchyard.report.amounts import NONE, format_count, format_duration, format_kib, format_mib
from batchyard.report.markup import Markup, join, px, tag
from batchyard.report.tables import plain_table
from batchyard.sampling.samples import SampledStep, SampledUse
from batchyard.units import pluralize

#: Steps whose longest attempt is drawn.
_MAX_DRAWN = 8
_WIDTH, _HEIGHT = 300.0, 72.0
_HEADINGS = ("Step", "Samples", "Busy CPUs", "at most", "Requested", "Peak memory", "Requested")
_GPU_HEADINGS = ("GPU", "at most", "Peak GPU memory", "of")
_NOTE = (
    "Samples of running children, taken every few seconds: CPU time of all processes of a child,"
    " their memory without mapped files, and the use of its GPUs. A peak between two samples is"
    " not seen. The charts are of the attempt with the longest samples of each step; a dashed line"
    " is what was requested, or the whole memory of the GPU."
)


@dataclass(frozen=True, slots=True)
class _Panel:
    """One measured amount of an attempt, as points of a chart."""

    name: str
    points: Sequence[float | None]
    #: what was requested, or the whole; None if it is not known
    limit: float | None
    caption: str


def resources_section(steps: Mapping[str, SampledStep], plan: Plan) -> Markup:
    """Return the section about measured use; nothing for a run that was not sampled."""
    requested = {job.step: job.resources for job in plan.jobs}
    sampled = [(step, steps[step]) for step in requested if step in steps]
    if not sampled:
        return Markup()
    has_gpus = any(entry.total.peak_gpu_memory_mib is not None for _, entry in sampled)
    headings = (*_HEADINGS, *(_GPU_HEADINGS if has_gpus else ()))
    rows = [_row(step, entry.total, requested[step])[: len(headings)] for step, entry in sampled]
    drawings = [
        (tag("h3", _name(entry, plan)), draw_use(entry.longest.use, requested[step]))
        for step, entry in sampled[:_MAX_DRAWN]
    ]
    return tag(
        "section",
        tag("h2", "Resources"),
        plain_table(headings, rows, 1),
        drawings,
        tag("p", _NOTE, class_="note"),
    )


def make_use_document(uses: Sequence[tuple[str, SampledUse]], requested: Resources) -> str:
    """Return a document with the charts of one child alone. ``uses``: title and use of each."""
    sections = [
        tag(
            "section",
            tag("h2", f"{title}: {format_duration(use.seconds)}"),
            draw_use(use, requested),
        )
        for title, use in uses
    ]
    return "<!doctype html>\n" + tag("html", tag("body", tag("main", sections)), lang="en") + "\n"


def _row(step: str, use: SampledUse, requested: Resources) -> tuple[str, ...]:
    return (
        step,
        format_count(use.samples),
        f"{use.mean_cpus:.2f}",
        f"{use.peak_cpus:.2f}",
        format_count(requested.vcpus),
        format_kib(use.peak_memory_kib),
        format_mib(requested.memory_mib),
        _percent(use.mean_gpu_percent),
        _percent(use.peak_gpu_percent),
        _mib(use.peak_gpu_memory_mib),
        _mib(use.gpu_memory_mib),
    )


def _name(step: SampledStep, plan: Plan) -> str:
    attempt = step.longest
    is_array = plan.job(attempt.step).step_size > 1
    child = f"{attempt.step}:{attempt.index_in_step}" if is_array else attempt.step
    return f"{child}, attempt {attempt.attempt}: {format_duration(attempt.use.seconds)}"


def draw_use(use: SampledUse, requested: Resources) -> Markup:
    """Return the charts of one attempt; nothing if its series was not kept."""
    panels = list(_panels(use, requested))
    if not panels:
        return Markup()
    drawings = [_draw_panel(number, panel) for number, panel in enumerate(panels)]
    return tag("div", drawings, class_="panels")


def _panels(use: SampledUse, requested: Resources) -> Iterator[_Panel]:
    series = use.series
    if series.cpus:
        vcpus = pluralize(requested.vcpus, "vCPU")
        caption = f"{use.mean_cpus:.2f} busy, at most {use.peak_cpus:.2f}; {vcpus} requested"
        yield _Panel("CPUs", series.cpus, requested.vcpus, caption)
        caption = (
            f"at most {format_kib(use.peak_memory_kib)}; "
            f"{format_mib(requested.memory_mib)} requested"
        )
        yield _Panel("Memory", series.memory_mib, requested.memory_mib, caption)
    if any(point is not None for point in series.gpu_percent):
        caption = f"{_percent(use.mean_gpu_percent)} busy, at most {_percent(use.peak_gpu_percent)}"
        yield _Panel("GPU", series.gpu_percent, 100.0, caption)
    if any(point is not None for point in series.gpu_memory_mib):
        caption = f"at most {_mib(use.peak_gpu_memory_mib)} of {_mib(use.gpu_memory_mib)}"
        yield _Panel("GPU memory", series.gpu_memory_mib, use.gpu_memory_mib, caption)


def _draw_panel(number: int, panel: _Panel) -> Markup:
    measured = [point for point in panel.points if point is not None]
    top = max(1e-9, *measured, panel.limit or 0) * 1.05
    shapes = [
        tag("line", x1=0, x2=_WIDTH, y1=_HEIGHT, y2=_HEIGHT, class_="base"),
        _draw_area(panel.points, top),
    ]
    if panel.limit is not None:
        y = _HEIGHT * (1 - panel.limit / top)
        shapes.append(tag("line", x1=0, x2=_WIDTH, y1=y, y2=y, class_="limit"))
    picture = tag(
        "svg",
        join(shapes),
        viewBox=f"0 0 {px(_WIDTH)} {px(_HEIGHT)}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{panel.name}: {panel.caption}",
        class_=f"use c{number}",
    )
    return tag("figure", tag("figcaption", tag("b", panel.name), " ", panel.caption), picture)


def _draw_area(points: Sequence[float | None], top: float) -> Markup:
    """Return columns as one path. Where nothing was measured, there is a gap."""
    width = _WIDTH / len(points)
    parts = []
    for position, point in enumerate(points):
        if point is not None:
            # A column that is 0 is still seen.
            height = max(0.75, _HEIGHT * point / top)
            parts.append(
                f"M{px(position * width)} {px(_HEIGHT)}v-{height:.2f}h{width:.2f}v{height:.2f}z"
            )
    return tag("path", d="".join(parts), class_="area")


def _percent(percent: float | None) -> str:
    return NONE if percent is None else f"{percent:.0f} %"


def _mib(mib: int | None) -> str:
    return NONE if mib is None else format_mib(mib)
