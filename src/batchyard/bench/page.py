"""The page about results: devices, charts, comparisons, tables, in one HTML document. Pure.

The document asks for nothing from anywhere: styles and drawings are inside it, and it has no script.
"""

from __future__ import annotations

from collections.abc import Sequence

import batchyard
from batchyard.bench import charts, comparing, prices, tables
from batchyard.bench.comparing import Comparison
from batchyard.bench.results import NOISY, Measurement, Outcome, Results
from batchyard.bench.roofline import roofline
from batchyard.bench.workload import CPU, GPU
from batchyard.report.amounts import format_time
from batchyard.report.markup import Content, Markup, tag
from batchyard.report.style import CSS

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_CSS = """
.chart .title { fill: var(--ink); font-weight: 600; }
.chart .value { fill: var(--ink); }
.chart .name { fill: var(--soft); }
.mark-full { fill: var(--c); stroke: var(--paper); }
.mark-hollow { fill: var(--paper); stroke: var(--c); stroke-width: 1.8; }
.whisker { stroke: var(--c); stroke-width: 1.4; fill: none; }
.bar { fill: var(--c); }
.chart .even { stroke: var(--ink); stroke-width: 1.2; }
.roof { fill: none; stroke: var(--c); stroke-width: 2; }
.roof1 { stroke-dasharray: 8 4; } .roof2 { stroke-dasharray: 2 3; }
.letter { fill: var(--paper); stroke: var(--c); stroke-width: 1.6; }
text.in-letter, .chart text.in-letter { fill: var(--ink); font-size: 10px; font-weight: 600; text-anchor: middle; }
ol.keys { columns: 3 18rem; margin: .75rem 0 0; padding-left: 1.8rem; color: var(--soft); font-size: .8rem; }
ol.keys li { break-inside: avoid; }
td.left.wide { white-space: normal; min-width: 12rem; }
.legend + .scroll { margin-top: 1.5rem; }
"""


def page(found: Sequence[Results], now_ms: int) -> str:
    """CPUs first. Of each pair of a CPU and a GPU there is a comparison, with the prices that are listed."""
    found = sorted(found, key=lambda one: (one.device, one.stands_for))
    measured = [one for one in found if one.good]
    body = (
        tag(
            "header",
            tag("h1", "CPU against GPU"),
            tag("p", _lead(found), class_="lead"),
            _devices(found),
        ),
        tag(
            "main",
            _comparisons(measured),
            _section("Times", charts.times_chart(measured), _TIMES_NOTE) if measured else _empty(),
            _section("Roofline", roofline(measured), _ROOF_NOTE),
            [_candidates(one) for one in measured],
            [_table(one) for one in found],
        ),
        tag("footer", f"Made by batchyard {batchyard.__version__} at {format_time(now_ms)}."),
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("link", rel="icon", href="data:,"),
        tag("title", "CPU against GPU - batchyard"),
        tag("style", Markup(CSS + _CSS)),
    )
    return "<!doctype html>\n" + tag("html", head, "\n", tag("body", body), lang="en") + "\n"


_TIMES_NOTE = (
    "Median of the warm calls; the whisker reaches from the 10th to the 90th percentile. The axis is logarithmic: "
    "equal distances are equal factors."
)
_ROOF_NOTE = (
    "A line is what the device did at best here: up to its bend the memory is the limit, beyond it the arithmetic. "
    "Bytes are counted as if each input were read once and each result written once; a point above the slope ran "
    "from the caches."
)
_CANDIDATES_NOTE = (
    "Each letter is one way to compute the operation, at its time as a multiple of the fastest. The fastest is the one "
    "that counts everywhere else on this page. Those far behind at a small size were not tried at larger ones."
)


def _lead(found: Sequence[Results]) -> str:
    kinds = {one.device for one in found}
    names = "; ".join(f"{one.kind}: {one.name}" for one in found)
    missing = "" if GPU in kinds else " No GPU was measured, so nothing here is about one."
    return f"{names}.{missing}"


def _empty() -> Markup:
    return tag("section", tag("p", "Nothing has been measured."))


def _section(title: str, chart: Markup, note: str) -> Content:
    return tag("section", tag("h2", title), chart, tag("p", note, class_="note")) if chart else None


def _candidates(results: Results) -> Content:
    title = f"The choice of the code, {results.kind}: {results.name}"
    return _section(title, charts.candidates_chart(results), _CANDIDATES_NOTE)


# -- devices ----------------------------------------------------------------------------------------------------


def _devices(found: Sequence[Results]) -> list[Markup]:
    listed = prices.listed()
    return [_device(one, listed.of(one.instance_type)) for one in found]


def _device(results: Results, usd_h: float | None) -> Markup:
    machine, peak = results.machine, results.peak
    noisy = sum((one.spread or 0) > NOISY for one in results.good)
    libraries = ", ".join(
        f"{name} {version}" for name, version in machine.get("libraries", {}).items()
    )
    gpus = "; ".join(", ".join(gpu.values()) for gpu in machine.get("gpus", ()))
    facts = [
        ("Device", f"{results.kind}: {results.device_name}"),
        ("Instance", results.instance_type or "?"),
        ("Dollars an hour, on-demand", "?" if usd_h is None else f"{usd_h:g}"),
        ("Measured", results.started + ("" if results.ended else ", not finished")),
        ("Peak, measured", f"{_number(peak.gflops)} GFLOP/s, {_number(peak.gbytes_s)} GB/s"),
        (
            "Host",
            f"{machine.get('cpu', '?')}, {machine.get('cpus', '?')} CPUs, {machine.get('threads', '?')} threads",
        ),
        ("GPU, driver, memory, clocks", gpus),
        ("Noise", f"{noisy} of {len(results.good)} spread by more than {NOISY * 100:.0f} %"),
        ("Malloc", str(machine.get("malloc", "?"))),
        ("Quick", "yes: not to decide by" if results.is_quick else ""),
        ("Libraries", libraries),
    ]
    cells = [
        tag(
            "div", tag("dt", name), tag("dd", value), class_="wide" if name == "Libraries" else None
        )
        for name, value in facts
        if value
    ]
    return tag("dl", cells, class_="facts")


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}"


# -- comparisons ------------------------------------------------------------------------------------------------


def _comparisons(found: Sequence[Results]) -> list[Content]:
    listed = prices.listed()
    sections: list[Content] = []
    for cpu in (one for one in found if one.device == CPU and not one.stands_for):
        for gpu in (one for one in found if GPU in (one.device, one.stands_for)):
            if {one.key for one in cpu.measurements} & {one.key for one in gpu.measurements}:
                sections.append(
                    _comparison(comparing.compare(cpu, gpu, listed), cpu, gpu, listed.source)
                )
    return sections


def _comparison(value: Comparison, cpu: Results, gpu: Results, source: str) -> Content:
    if not value.counted:
        return None
    a, b = value.first.label, value.second.label
    head = ("Operation", a, b, "with copies", "Speed-up", f"{a} $/1000", f"{b} $/1000", "Pick")
    rows = [_compared(value, row) for row in value.rows if not row.reason]
    evens = [tag("li", f"{one.title}: the GPU {one.says}") for one in value.break_evens]
    notes = [tag("li", note) for note in (*value.notes, f"prices: {source}")]
    return tag(
        "section",
        tag("h2", f"{cpu.name} against {'the ' + gpu.kind if gpu.stands_for else gpu.name}"),
        charts.speed_up_chart(value),
        _plain(head, rows, {0, 7}),
        (tag("h3", "Break-even, copies included"), tag("ul", evens, class_="plain"))
        if evens
        else None,
        tag("ul", notes, class_="plain note"),
    )


def _compared(value: Comparison, row: comparing.Row) -> list[str]:
    copied = tables.time_text(row.second.copied_s) if row.second.with_copies_s else tables.NONE
    return [
        row.first.operation,
        tables.time_text(row.first.copied_s),
        tables.time_text(row.second.median_s),
        copied,
        tables.times_text(row.speed_up),
        tables.dollars_text(row.first_usd),
        tables.dollars_text(row.second_usd),
        value.pick(row),
    ]


# -- tables -----------------------------------------------------------------------------------------------------


def _table(results: Results) -> Markup:
    head = (
        "Operation",
        "Fastest with",
        "Cold",
        "Median",
        "Spread",
        "With copies",
        "Rate",
        "Of peak",
        "Memory",
    )
    rows = [_measured(one, results) for one in results.good]
    bad = [one for one in results.measurements if one.outcome is not Outcome.OK]
    lines = [tag("li", f"{one.operation}: {one.outcome.value}: {one.reason}") for one in bad]
    return tag(
        "section",
        tag("h2", f"{results.kind}: {results.name}"),
        _plain(head, rows, {0, 1}) if rows else None,
        (tag("h3", "Not measured"), tag("ul", lines, class_="plain")) if lines else None,
    )


def _measured(one: Measurement, results: Results) -> list[str]:
    return [
        one.operation,
        one.candidate,
        tables.time_text(one.cold_s),
        tables.time_text(one.median_s),
        tables.percent(one.spread) + (" !" if (one.spread or 0) > NOISY else ""),
        tables.time_text(one.copied_s) if one.with_copies_s else tables.NONE,
        tables.rate_text(one),
        tables.percent(results.peak.part(one)),
        tables.bytes_text(one.peak_memory_bytes),
    ]


def _plain(head: Sequence[str], rows: Sequence[Sequence[str]], texts: set[int]) -> Markup:
    def class_(column: int) -> str | None:
        return "left wide" if column in texts else None

    names = [tag("th", name, scope="col", class_=class_(i)) for i, name in enumerate(head)]
    lines = [
        tag("tr", [tag("td", cell, class_=class_(i)) for i, cell in enumerate(row)]) for row in rows
    ]
    return tag(
        "div", tag("table", tag("thead", tag("tr", names)), tag("tbody", lines)), class_="scroll"
    )
