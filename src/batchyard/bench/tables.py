"""What people and spreadsheets read: a run, and a comparison, as text and CSV. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from batchyard.bench.comparing import Comparison, Row, Side
from batchyard.bench.prices import UNKNOWN
from batchyard.bench.results import (
    NOISY,
    STOOD_IN,
    Measurement,
    Outcome,
    Peak,
    Results,
    Trial,
    spread_of,
)
from batchyard.units import format_duration

NONE = "-"


# -- amounts ----------------------------------------------------------------------------------------------------


def time_text(seconds: float | None) -> str:
    """Three figures, in the unit that fits."""
    if seconds is None:
        return NONE
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        if seconds * factor < 999.5:
            return f"{_figures(seconds * factor)} {unit}"
    return f"{_figures(seconds)} s" if seconds < 599.5 else format_duration(seconds)


def _figures(value: float) -> str:
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def percent(part: float | None) -> str:
    return NONE if part is None else f"{part * 100:.0f} %"


def bytes_text(count: int | None) -> str:
    if count is None:
        return UNKNOWN
    return f"{count / 2**20:.0f} MiB" if count < 2**30 else f"{count / 2**30:.1f} GiB"


def rate_text(one: Measurement) -> str:
    rate, unit = (one.gbytes_s, "GB/s") if one.is_about_bytes else (one.gflops, "GFLOP/s")
    return NONE if rate is None else f"{_figures(rate)} {unit}"


def dollars_text(usd: float | None) -> str:
    """Unknown is unknown: never a guess."""
    if usd is None:
        return UNKNOWN
    return (
        f"${usd:.2f}"
        if usd >= 0.995
        else f"${usd:.2g}"
        if usd >= 1e-4 or usd == 0
        else f"${usd:.1e}"
    )


def times_text(factor: float | None) -> str:
    if factor is None:
        return NONE
    return f"{_figures(factor)}x" if factor >= 0.1 else f"{factor:.2g}x"


def columns(head: Sequence[str], rows: Sequence[Sequence[str]], texts: frozenset[int]) -> list[str]:
    """As wide as their widest cell; those in ``texts`` flush left."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        cells = [
            cell.ljust(widths[i]) if i in texts else cell.rjust(widths[i])
            for i, cell in enumerate(row)
        ]
        return "  ".join(cells).rstrip()

    return [line(head), "  ".join("-" * width for width in widths), *map(line, rows)]


# -- a run ------------------------------------------------------------------------------------------------------


def run_text(results: Results, *, all_candidates: bool = False) -> str:
    parts = [_title(results), "\n".join(_facts(results)), "\n".join(_operations(results))]
    if all_candidates:
        parts.append("\n".join(_candidates(results)))
    parts += ["\n".join(lines) for lines in (_problems(results), _remarks(results)) if lines]
    return "\n\n".join(parts) + "\n"


def _title(results: Results) -> str:
    quick = ", quick" if results.is_quick else ""
    return f"batchyard bench: {results.kind}{quick}: {results.device_name}"


def _facts(results: Results) -> list[str]:
    machine = results.machine
    libraries = ", ".join(
        f"{name} {version}" for name, version in machine.get("libraries", {}).items()
    )
    clock = machine.get("cpu_clock_mhz")
    price = machine.get("price", {})
    pairs = [
        (
            "measured",
            results.started + (f" to {results.ended}" if results.ended else ", not finished"),
        ),
        ("instance", results.instance_type or f"{UNKNOWN} (not on EC2, or it does not say)"),
        ("price", _price(price.get("usd_h"), price.get("source", ""))),
        (
            "CPU",
            f"{machine.get('cpu', UNKNOWN)}, {machine.get('cpus', UNKNOWN)} CPUs"
            + (f", {clock:.0f} MHz" if clock else ""),
        ),
        ("memory", bytes_text(machine.get("memory_bytes"))),
        ("threads", str(machine.get("threads", UNKNOWN))),
        ("malloc", str(machine.get("malloc", UNKNOWN))),
        ("system", ", ".join(str(machine[k]) for k in ("system", "libc") if machine.get(k))),
        ("libraries", f"Python {machine.get('python', UNKNOWN)}, {libraries}"),
        ("BLAS", str(machine.get("blas", ""))),
        *(
            ("GPU", ", ".join(f"{name} {value}" for name, value in gpu.items()))
            for gpu in machine.get("gpus", ())
        ),
        ("peak", f"{_peak(results.peak)} (measured here)"),
    ]
    return [f"{name + ':':<11}{value}" for name, value in pairs if value]


def _price(usd_h: float | None, source: str) -> str:
    return f"{UNKNOWN} dollars an hour" if usd_h is None else f"${usd_h:g} an hour ({source})"


def _peak(peak: Peak) -> str:
    flops = UNKNOWN if peak.gflops is None else _figures(peak.gflops)
    gbytes = UNKNOWN if peak.gbytes_s is None else _figures(peak.gbytes_s)
    return f"{flops} GFLOP/s, {gbytes} GB/s"


def _operations(results: Results) -> list[str]:
    head = [
        "operation",
        "fastest with",
        "cold",
        "median",
        "spread",
        "with copies",
        "rate",
        "of peak",
        "memory",
        "error, allowed",
    ]
    rows = []
    for one in results.good:
        spread = percent(one.spread) + (" !" if (one.spread or 0) > NOISY else "")
        copied = time_text(one.copied_s) if one.with_copies_s else NONE
        error = NONE if one.error is None else f"{one.error:.0e}, {one.tolerance or 0:.0e}"
        rows.append(
            [
                *(
                    one.operation,
                    one.candidate,
                    time_text(one.cold_s),
                    time_text(one.median_s),
                    spread,
                    copied,
                ),
                *(
                    rate_text(one),
                    percent(results.peak.part(one)),
                    bytes_text(one.peak_memory_bytes),
                    error,
                ),
            ]
        )
    if not rows:
        return ["nothing has been measured" if results.ended else "nothing has been measured yet"]
    return columns(head, rows, frozenset({0, 1}))


def _candidates(results: Results) -> list[str]:
    head, rows = (
        ["operation", "candidate", "cold", "median", "spread", "calls", "of the fastest"],
        [],
    )
    for measured in results.measurements:
        best_s = measured.median_s
        for one in sorted(measured.tried, key=lambda trial: trial.median_s or float("inf")):
            rows.append([measured.operation, one.candidate, *_trial_cells(one, best_s)])
    return ["every candidate:", "", *columns(head, rows, frozenset({0, 1}))]


def _trial_cells(one: Trial, best_s: float | None) -> list[str]:
    if one.median_s is None:
        return ["", "", "", "", f"{one.outcome.value}: {one.reason}"]
    share = times_text(one.median_s / best_s) if best_s else NONE
    return [
        *(time_text(one.cold_s), time_text(one.median_s), percent(spread_of(one.warm_s))),
        *(str(len(one.warm_s)), share),
    ]


def _problems(results: Results) -> list[str]:
    bad = [one for one in results.measurements if one.outcome is not Outcome.OK]
    lines = [f"{one.operation}: {one.outcome.value.upper()}: {one.reason}" for one in bad]
    lines += [f"{one.operation}: {one.reason}" for one in results.good if one.reason]
    lines += [
        f"{measured.operation}: {one.candidate} FAILED: {one.reason}"
        for measured in results.good
        for one in measured.tried
        if one.outcome is Outcome.FAILED
    ]
    return lines


def _remarks(results: Results) -> list[str]:
    lines = []
    if results.stands_for:
        lines.append(STOOD_IN)
    noisy = [one for one in results.good if (one.spread or 0) > NOISY]
    if noisy:
        lines.append(
            f"warning: {len(noisy)} of {len(results.good)} spread by more than {NOISY * 100:.0f} % (marked !): "
            "the machine was not quiet, and a repeat may differ as much"
        )
    if results.is_quick:
        lines.append(
            "quick: few repeats and small sizes: fit to see that it works, not to decide by"
        )
    if results.missing:
        said = "; ".join(f"{name}: {reason}" for name, reason in results.missing.items())
        lines.append(f"not tried, and might be faster: {said}")
    if not results.ended:
        lines.append("not finished: what was measured until here is all there is")
    else:
        spent = results.seconds
        lines.append(
            f"took {time_text(spent.total)}, of it {percent(spent.overhead)} neither inputs, checks nor calls"
        )
    return lines


# -- a comparison -----------------------------------------------------------------------------------------------


def comparison_text(value: Comparison, source: str, *, prices: bool = False) -> str:
    a, b = value.first, value.second
    head = [
        *(
            "operation",
            f"{a.label} time",
            f"{b.label} time",
            "with copies",
            "speed-up",
            "without copies",
        ),
        *(f"{a.label} $/1000", f"{b.label} $/1000", "pick"),
    ]
    rows = [_comparison_row(value, row) for row in value.rows if not row.reason]
    rows.append(_total_row(value))
    parts = [
        "\n".join([_side_text(a), _side_text(b)]),
        "\n".join(columns(head, rows, frozenset({0, 8}))),
    ]
    unable = [
        f"{row.first.operation}: not compared: {row.reason}" for row in value.rows if row.reason
    ]
    unable += [f"{operation}: only {label} has it" for label, operation in value.alone]
    evens = [f"{one.title}: {b.label} {one.says}" for one in value.break_evens]
    notes = [f"note: {note}" for note in value.notes]
    if prices:
        notes.append(f"prices: {source}")
    if evens:
        parts.append("\n".join(["break-even, copies included:", *evens]))
    parts += ["\n".join(lines) for lines in (unable, notes) if lines]
    return "\n\n".join(parts) + "\n"


def _side_text(side: Side) -> str:
    usd = f"${side.usd_h:g} an hour" if side.usd_h is not None else f"{UNKNOWN} dollars an hour"
    return f"{side.label}: {side.about}{side.instance_type or 'instance type ' + UNKNOWN}, {usd}"


def _comparison_row(value: Comparison, row: Row) -> list[str]:
    has_copies = bool(row.second.with_copies_s)
    return [
        row.first.operation,
        time_text(row.first.copied_s),
        time_text(row.second.median_s),
        time_text(row.second.copied_s) if has_copies else NONE,
        times_text(row.speed_up),
        times_text(row.bare_speed_up) if has_copies else NONE,
        dollars_text(row.first_usd),
        dollars_text(row.second_usd),
        value.pick(row),
    ]


def _total_row(value: Comparison) -> list[str]:
    first_s, second_s = value.total_s()
    bare_s = sum(row.second.median_s or 0 for row in value.counted)
    up = times_text(first_s / second_s) if second_s else NONE
    first_usd, second_usd = value.total_usd()
    dollars = [dollars_text(first_usd), dollars_text(second_usd)]
    return [
        "total",
        time_text(first_s),
        time_text(bare_s),
        time_text(second_s),
        up,
        "",
        *dollars,
        "",
    ]


# -- CSV --------------------------------------------------------------------------------------------------------

CSV_HEAD = (
    *(
        "device",
        "workload",
        "size",
        "label",
        "outcome",
        "reason",
        "candidate",
        "cold_s",
        "median_s",
        "spread",
    ),
    *(
        "calls",
        "with_copies_s",
        "to_device_s",
        "to_host_s",
        "gflops",
        "gbytes_s",
        "peak_memory_bytes",
        "error",
    ),
    "tolerance",
)


def csv_text(results: Results) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_HEAD)
    device = results.kind if results.stands_for else results.device
    for one in results.measurements:
        copied = one.copied_s if one.with_copies_s else None
        writer.writerow(
            [
                *(
                    device,
                    one.workload,
                    one.size,
                    one.label,
                    one.outcome.value,
                    one.reason,
                    one.candidate,
                ),
                *(
                    one.cold_s,
                    one.median_s,
                    one.spread,
                    len(one.warm_s),
                    copied,
                    one.to_device_s,
                    one.to_host_s,
                ),
                *(one.gflops, one.gbytes_s, one.peak_memory_bytes, one.error, one.tolerance),
            ]
        )
    return out.getvalue()
