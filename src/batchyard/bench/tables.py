"""Write results and comparisons as text tables and CSV. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from statistics import median

from batchyard.bench.comparing import Comparison, Row, Side
from batchyard.bench.results import (
    NOISY,
    SLOWED,
    STAND_IN_NOTE,
    Measurement,
    Outcome,
    Peak,
    Results,
    Trial,
    spread_of,
)
from batchyard.ec2_prices import UNKNOWN
from batchyard.units import format_duration

NONE = "-"


# -- amounts --


def time_text(seconds: float | None) -> str:
    """Return a duration with three figures, in the unit that fits."""
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


def percent_text(fraction: float | None) -> str:
    return NONE if fraction is None else f"{fraction * 100:.0f} %"


def bytes_text(count: int | None) -> str:
    if count is None:
        return UNKNOWN
    return f"{count / 2**20:.0f} MiB" if count < 2**30 else f"{count / 2**30:.1f} GiB"


def spread_text(measurement: Measurement) -> str:
    """Return the spread; a spread beyond NOISY is marked with an exclamation mark."""
    is_noisy = (measurement.spread or 0) > NOISY
    return percent_text(measurement.spread) + (" !" if is_noisy else "")


def rate_text(measurement: Measurement) -> str:
    """Return bytes or operations per second, whichever the workload is about."""
    if measurement.is_about_bytes:
        rate, unit = measurement.gbytes_s, "GB/s"
    else:
        rate, unit = measurement.gflops, "GFLOP/s"
    return NONE if rate is None else f"{_figures(rate)} {unit}"


def dollars_text(usd: float | None) -> str:
    """Return an amount of dollars, or ? if it is unknown."""
    if usd is None:
        return UNKNOWN
    if usd >= 0.995:
        return f"${usd:.2f}"
    return f"${usd:.2g}" if usd >= 1e-4 or usd == 0 else f"${usd:.1e}"


def times_text(factor: float | None) -> str:
    if factor is None:
        return NONE
    return f"{_figures(factor)}x" if factor >= 0.1 else f"{factor:.2g}x"


def columns(head: Sequence[str], rows: Sequence[Sequence[str]], texts: frozenset[int]) -> list[str]:
    """Return the lines of a table. ``texts``: numbers of the left-aligned columns."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        cells = [
            cell.ljust(widths[i]) if i in texts else cell.rjust(widths[i])
            for i, cell in enumerate(row)
        ]
        return "  ".join(cells).rstrip()

    return [line(head), "  ".join("-" * width for width in widths), *map(line, rows)]


# -- a run --


def run_text(results: Results, *, all_candidates: bool = False) -> str:
    """Return the report on one device. ``all_candidates``: with a table of all candidates."""
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
        ("instance", results.instance_type or f"{UNKNOWN} (not on EC2, or no metadata service)"),
        ("price", _price(price.get("usd_h"), price.get("source", ""))),
        (
            "CPU",
            f"{machine.get('cpu', UNKNOWN)}, {machine.get('cpus', UNKNOWN)} CPUs"
            + (f", {clock:.0f} MHz" if clock else ""),
        ),
        ("memory", bytes_text(machine.get("memory_bytes"))),
        ("threads", str(machine.get("threads", ""))),
        ("malloc", str(machine.get("malloc", ""))),
        ("system", ", ".join(str(machine[k]) for k in ("system", "libc") if machine.get(k))),
        ("libraries", f"Python {machine.get('python', UNKNOWN)}, {libraries}" if libraries else ""),
        ("BLAS", str(machine.get("blas", ""))),
        *(
            ("GPU", ", ".join(f"{name} {value}" for name, value in gpu.items()))
            for gpu in machine.get("gpus", ())
        ),
        ("peak", "" if results.is_command else f"{_peak(results.peak)} (measured here)"),
    ]
    return [f"{name + ':':<11}{value}" for name, value in pairs if value]


def _price(usd_h: float | None, source: str) -> str:
    return f"{UNKNOWN} dollars an hour" if usd_h is None else f"${usd_h:g} an hour ({source})"


def _peak(peak: Peak) -> str:
    flops = UNKNOWN if peak.gflops is None else _figures(peak.gflops)
    gbytes = UNKNOWN if peak.gbytes_s is None else _figures(peak.gbytes_s)
    return f"{flops} GFLOP/s, {gbytes} GB/s"


def _operations(results: Results) -> list[str]:
    if results.is_command and results.successes:
        cells = [
            [run.operation, time_text(run.cold_s), time_text(run.median_s), spread_text(run)]
            for run in results.successes
        ]
        return columns(["command", "first", "median", "spread"], cells, frozenset({0}))
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
    rows = [
        [*measurement_cells(measurement, results), _error_text(measurement)]
        for measurement in results.successes
    ]
    if any(measurement.gpu_clocks for measurement in results.successes):
        head.append("GPU clock")
        for row, measurement in zip(rows, results.successes, strict=True):
            row.append(_clock_text(measurement))
    if not rows:
        return ["nothing has been measured" if results.ended else "nothing has been measured yet"]
    return columns(head, rows, frozenset({0, 1}))


def measurement_cells(measurement: Measurement, results: Results) -> list[str]:
    """Return the cells of an operation: names, times, spread, rate, peak, memory."""
    copies_s = measurement.median_with_copies_s if measurement.with_copies_s else None
    return [
        measurement.operation,
        measurement.candidate,
        time_text(measurement.cold_s),
        time_text(measurement.median_s),
        spread_text(measurement),
        time_text(copies_s),
        rate_text(measurement),
        percent_text(results.peak.fraction(measurement)),
        bytes_text(measurement.peak_memory_bytes),
    ]


def _clock_text(measurement: Measurement) -> str:
    """Return the clock of the GPU while it was measured, and the highest that it allows."""
    clocks = measurement.gpu_clocks
    if clocks is None:
        return NONE
    is_slowed = (clocks.fraction or 1.0) < SLOWED
    return f"{clocks.median_mhz:.0f} of {clocks.max_mhz:.0f} MHz" + (" !" if is_slowed else "")


def _error_text(measurement: Measurement) -> str:
    if measurement.error is None:
        return NONE
    return f"{measurement.error:.0e}, {measurement.tolerance or 0:.0e}"


def _candidates(results: Results) -> list[str]:
    head, rows = (
        ["operation", "candidate", "cold", "median", "spread", "calls", "of the fastest"],
        [],
    )
    for measurement in results.measurements:
        best_s = measurement.median_s
        for trial in sorted(measurement.tried, key=lambda trial: trial.median_s or float("inf")):
            rows.append([measurement.operation, trial.candidate, *_trial_cells(trial, best_s)])
    return ["every candidate:", "", *columns(head, rows, frozenset({0, 1}))]


def _trial_cells(trial: Trial, best_s: float | None) -> list[str]:
    if trial.median_s is None:
        return ["", "", "", "", f"{trial.outcome.value}: {trial.reason}"]
    return [
        time_text(trial.cold_s),
        time_text(trial.median_s),
        percent_text(spread_of(trial.warm_s)),
        str(len(trial.warm_s)),
        times_text(trial.median_s / best_s) if best_s else NONE,
    ]


def _problems(results: Results) -> list[str]:
    lines = [
        f"{measurement.operation}: {measurement.outcome.value.upper()}: {measurement.reason}"
        for measurement in results.measurements
        if measurement.outcome is not Outcome.OK
    ]
    lines += [
        f"{measurement.operation}: {measurement.reason}"
        for measurement in results.successes
        if measurement.reason
    ]
    lines += [
        f"{measurement.operation}: {trial.candidate} FAILED: {trial.reason}"
        for measurement in results.successes
        for trial in measurement.tried
        if trial.outcome is Outcome.FAILED
    ]
    return lines


def _remarks(results: Results) -> list[str]:
    lines = []
    if results.stands_for:
        lines.append(STAND_IN_NOTE)
    if results.noisy_count:
        lines.append(
            f"warning: {results.noisy_count} of {len(results.successes)} spread by more than"
            f" {NOISY * 100:.0f} % (marked !): other load on the machine disturbed them,"
            " and a repeat may differ as much"
        )
    if slowed := sum(" !" in _clock_text(measurement) for measurement in results.successes):
        lines.append(
            f"warning: in {slowed} of {len(results.successes)} the GPU's clock was below"
            f" {SLOWED * 100:.0f} % of its highest (marked !): it was cold, hot, or at its limit of"
            " power, and another GPU of the type may be faster"
        )
    if results.is_quick:
        lines.append("quick: few repeats and small sizes: shows that it works, not for decisions")
    if reasons := {**results.missing, **_untried_candidates(results)}:
        listing = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        lines.append(f"not tried, and might be faster: {listing}")
    if not results.ended:
        lines.append("not finished: only the operations above were measured")
    elif not results.is_command:
        seconds = results.seconds
        lines.append(
            f"took {time_text(seconds.total)}; {percent_text(seconds.overhead)} of it was the"
            " benchmark's own work, not inputs, checks or measured calls"
        )
    return lines


def _untried_candidates(results: Results) -> dict[str, str]:
    """Return the candidates that need something which is not installed, with the reason."""
    return {
        trial.candidate: trial.reason
        for measurement in results.measurements
        for trial in measurement.tried
        if trial.outcome is Outcome.SKIPPED and trial.reason.startswith("it needs")
    }


# -- a comparison --


def comparison_text(comparison: Comparison, source: str, price_lines: Sequence[str] = ()) -> str:
    """Return the report on a comparison.

    ``source``: region, date and origin of the prices; ``price_lines`` are added below it.
    """
    first, second = comparison.first, comparison.second
    head = [
        *(
            "operation",
            f"{first.label} time",
            f"{second.label} time",
            "with copies",
            "speed-up",
            "without copies",
        ),
        *(f"{first.label} $/1000", f"{second.label} $/1000", "pick"),
    ]
    rows = [comparison_cells(comparison, row) for row in comparison.rows if not row.reason]
    rows.append(_total_row(comparison))
    parts = [
        "\n".join([_side_text(first), _side_text(second)]),
        "\n".join(columns(head, rows, frozenset({0, 8}))),
    ]
    not_compared = [
        f"{row.first.operation}: not compared: {row.reason}"
        for row in comparison.rows
        if row.reason
    ]
    not_compared += [
        f"{operation}: only {label} has it" for label, operation in comparison.one_sided
    ]
    break_evens = [
        f"{break_even.title}: {second.label} {break_even.verdict}"
        for break_even in comparison.break_evens
    ]
    notes = [*(f"note: {note}" for note in comparison.notes), f"prices: {source}", *price_lines]
    if break_evens:
        parts.append("\n".join(["break-even, copies included:", *break_evens]))
    parts += ["\n".join(lines) for lines in (not_compared, notes) if lines]
    return "\n\n".join(parts) + "\n"


def _side_text(side: Side) -> str:
    usd = f"${side.usd_h:g} an hour" if side.usd_h is not None else f"{UNKNOWN} dollars an hour"
    return f"{side.label}: {side.about}{side.instance_type or 'instance type ' + UNKNOWN}, {usd}"


def comparison_cells(comparison: Comparison, row: Row) -> list[str]:
    """Return the cells of a row: operation, times, speed-ups, dollars, pick.

    A stand-in has no speed-up: it would be read as that of a GPU.
    """
    has_copies = bool(row.second.with_copies_s)
    speed_up, bare_speed_up = (
        (None, None) if comparison.has_stand_in else (row.speed_up, row.bare_speed_up)
    )
    return [
        row.first.operation,
        time_text(row.first.median_with_copies_s),
        time_text(row.second.median_s),
        time_text(row.second.median_with_copies_s) if has_copies else NONE,
        times_text(speed_up),
        times_text(bare_speed_up) if has_copies else NONE,
        dollars_text(row.first_usd),
        dollars_text(row.second_usd),
        comparison.pick(row),
    ]


def _total_row(comparison: Comparison) -> list[str]:
    first_s, second_s = comparison.total_s()
    bare_s = sum(row.second.median_s or 0 for row in comparison.comparable_rows)
    has_speed_up = second_s and not comparison.has_stand_in
    speed_up = times_text(first_s / second_s) if has_speed_up else NONE
    times = [time_text(seconds) for seconds in (first_s, bare_s, second_s)]
    dollars = [dollars_text(usd) for usd in comparison.total_usd()]
    return ["total", *times, speed_up, "", *dollars, ""]


# -- CSV --

CSV_HEAD = (
    "device workload size label outcome reason candidate cold_s median_s spread calls with_copies_s"
    " to_device_s to_host_s gflops gbytes_s peak_memory_bytes error tolerance"
).split()


def csv_text(results: Results) -> str:
    """Return one line per operation, with the columns CSV_HEAD."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_HEAD)
    device = results.kind if results.stands_for else results.device
    for measurement in results.measurements:
        # The other columns are fields and properties of the measurement.
        cells = {
            "device": device,
            "outcome": measurement.outcome.value,
            "calls": len(measurement.warm_s),
            "with_copies_s": median(measurement.with_copies_s)
            if measurement.with_copies_s
            else None,
        }
        writer.writerow(
            [cells[name] if name in cells else getattr(measurement, name) for name in CSV_HEAD]
        )
    return out.getvalue()
