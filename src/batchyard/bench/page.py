"""Write results as one HTML page: devices, charts, comparisons, tables. Pure.

The page contains its styles and drawings, has no script, and loads nothing from a network.
"""

from __future__ import annotations

from collections.abc import Sequence

import batchyard
from batchyard.bench import charts, comparing, tables
from batchyard.bench.comparing import Comparison
from batchyard.bench.results import NOISY, Outcome, Results
from batchyard.bench.roofline import roofline
from batchyard.bench.workload import CPU, GPU
from batchyard.ec2_prices import Prices
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
text.in-letter, .chart text.in-letter {
  fill: var(--ink); font-size: 10px; font-weight: 600; text-anchor: middle;
}
ol.keys {
  columns: 3 18rem; margin: .75rem 0 0; padding-left: 1.8rem; color: var(--soft); font-size: .8rem;
}
ol.keys li { break-inside: avoid; }
td.left.wide { white-space: normal; min-width: 12rem; }
.legend + .scroll { margin-top: 1.5rem; }
"""


def page(all_results: Sequence[Results], now_ms: int, prices: Prices) -> str:
    """Return the page: CPUs first, and a comparison of each pair of a CPU and a GPU.

    ``now_ms``: the time in the footer.
    """
    all_results = sorted(all_results, key=lambda results: (results.device, results.stands_for))
    measured = [results for results in all_results if results.successes]
    body = (
        tag(
            "header",
            tag("h1", "CPU against GPU"),
            tag("p", _lead(all_results), class_="lead"),
            [_device(results, prices.of(results.instance_type)) for results in all_results],
            tag("p", f"Prices: {prices.source}", class_="note"),
        ),
        tag(
            "main",
            _comparisons(measured, prices),
            _section("Times", charts.times_chart(measured), _TIMES_NOTE) if measured else _empty(),
            _section("Roofline", roofline(measured), _ROOF_NOTE),
            [_candidates(results) for results in measured],
            [_table(results) for results in all_results],
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
    "Median of the warm calls; the whisker reaches from the 10th to the 90th percentile. "
    "The axis is logarithmic: equal distances are equal factors."
)
_ROOF_NOTE = (
    "A line is the highest rate of the device: up to its bend the memory is the limit, "
    "beyond it the arithmetic. Bytes are counted as if each input were read once and each "
    "result written once; a point above the slope ran from the caches."
)
_CANDIDATES_NOTE = (
    "Each letter is one way to compute the operation, at its time as a multiple of the fastest. "
    "Everywhere else on this page, only the fastest counts. Candidates that were far behind at a "
    "small size were not tried at larger ones."
)


def _lead(all_results: Sequence[Results]) -> str:
    kinds = {results.device for results in all_results}
    names = "; ".join(f"{results.kind}: {results.name}" for results in all_results)
    missing = "" if GPU in kinds else " No GPU was measured, so nothing here is about one."
    return f"{names}.{missing}"


def _empty() -> Markup:
    return tag("section", tag("p", "Nothing has been measured."))


def _section(title: str, chart: Markup, note: str) -> Content:
    return tag("section", tag("h2", title), chart, tag("p", note, class_="note")) if chart else None


def _candidates(results: Results) -> Content:
    title = f"The choice of the code, {results.kind}: {results.name}"
    return _section(title, charts.candidates_chart(results), _CANDIDATES_NOTE)


# -- devices --


def _device(results: Results, usd_h: float | None) -> Markup:
    facts = [(name, fact) for name, fact in _device_facts(results, usd_h) if fact]
    cells = [
        tag("div", tag("dt", name), tag("dd", fact), class_="wide" if name == "Libraries" else None)
        for name, fact in facts
    ]
    return tag("dl", cells, class_="facts")


def _device_facts(results: Results, usd_h: float | None) -> list[tuple[str, str]]:
    machine, peak = results.machine, results.peak
    noise = f"{results.noisy_count} of {len(results.successes)}"
    host = [machine.get(key, "?") for key in ("cpu", "cpus", "threads")]
    libraries = ", ".join(
        f"{name} {version}" for name, version in machine.get("libraries", {}).items()
    )
    gpus = "; ".join(", ".join(gpu.values()) for gpu in machine.get("gpus", ()))
    return [
        ("Device", f"{results.kind}: {results.device_name}"),
        ("Instance", results.instance_type or "?"),
        ("Dollars an hour", "?" if usd_h is None else f"{usd_h:g}"),
        ("Measured", results.started + ("" if results.ended else ", not finished")),
        ("Peak, measured", f"{_number(peak.gflops)} GFLOP/s, {_number(peak.gbytes_s)} GB/s"),
        ("Host", f"{host[0]}, {host[1]} CPUs, {host[2]} threads"),
        ("GPU, driver, memory, clocks", gpus),
        ("Noise", f"{noise} spread by more than {NOISY * 100:.0f} %"),
        ("Malloc", str(machine.get("malloc", "?"))),
        ("Quick", "yes: not for decisions" if results.is_quick else ""),
        ("Libraries", libraries),
    ]


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}"


# -- comparisons --


def _comparisons(all_results: Sequence[Results], prices: Prices) -> list[Content]:
    cpus = [results for results in all_results if results.device == CPU and not results.stands_for]
    gpus = [results for results in all_results if GPU in (results.device, results.stands_for)]
    return [
        _comparison(comparing.compare(cpu, gpu, prices), cpu, gpu)
        for cpu in cpus
        for gpu in gpus
        if _keys(cpu) & _keys(gpu)
    ]


def _keys(results: Results) -> set[tuple[str, int]]:
    return {measurement.key for measurement in results.measurements}


def _comparison(comparison: Comparison, cpu: Results, gpu: Results) -> Content:
    if not comparison.comparable_rows:
        return None
    a, b = comparison.first.label, comparison.second.label
    head = ("Operation", a, b, "with copies", "Speed-up", f"{a} $/1000", f"{b} $/1000", "Pick")
    rows = [_comparison_cells(comparison, row) for row in comparison.rows if not row.reason]
    break_evens = [
        tag("li", f"{break_even.title}: the GPU {break_even.verdict}")
        for break_even in comparison.break_evens
    ]
    notes = [tag("li", note) for note in comparison.notes]
    return tag(
        "section",
        tag("h2", f"{cpu.name} against {'the ' + gpu.kind if gpu.stands_for else gpu.name}"),
        charts.speed_up_chart(comparison),
        _html_table(head, rows, {0, 7}),
        (tag("h3", "Break-even, copies included"), tag("ul", break_evens, class_="plain"))
        if break_evens
        else None,
        tag("ul", notes, class_="plain note") if notes else None,
    )


def _comparison_cells(comparison: Comparison, row: comparing.Row) -> list[str]:
    """Return the cells of the text table except the speed-up without copies."""
    cells = tables.comparison_cells(comparison, row)
    return [*cells[:5], *cells[6:]]


# -- tables --


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
    rows = [tables.measurement_cells(measurement, results) for measurement in results.successes]
    lines = [
        tag("li", f"{measurement.operation}: {measurement.outcome.value}: {measurement.reason}")
        for measurement in results.measurements
        if measurement.outcome is not Outcome.OK
    ]
    return tag(
        "section",
        tag("h2", f"{results.kind}: {results.name}"),
        _html_table(head, rows, {0, 1}) if rows else None,
        (tag("h3", "Not measured"), tag("ul", lines, class_="plain")) if lines else None,
    )


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]], texts: set[int]) -> Markup:
    def class_(column: int) -> str | None:
        return "left wide" if column in texts else None

    names = [tag("th", name, scope="col", class_=class_(i)) for i, name in enumerate(head)]
    lines = [
        tag("tr", [tag("td", cell, class_=class_(i)) for i, cell in enumerate(row)]) for row in rows
    ]
    return tag(
        "div", tag("table", tag("thead", tag("tr", names)), tag("tbody", lines)), class_="scroll"
    )
