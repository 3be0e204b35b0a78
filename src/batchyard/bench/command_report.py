"""Report on a command that was measured: seconds, dollars per run, which device to take. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batchyard.bench import comparing, tables
from batchyard.bench.break_evens import Measure
from batchyard.bench.comparing import Comparison, Row
from batchyard.bench.results import NOISY, STAND_IN_NOTE, Measurement, Outcome, Results
from batchyard.bench.workload import CPU, GPU
from batchyard.ec2_prices import Prices, add_prices, load_prices
from batchyard.ec2_types import TYPES

_HEAD = ("run", "device", "instance", "first", "median", "spread", "runs", "on demand", "spot")
_START_NOTE = (
    "dollars are for the seconds of the command alone, on a whole instance: a job also pays for the"
    " start of its host and for pulling its image"
)


@dataclass(frozen=True, slots=True)
class Market:
    """One way to pay for an instance, and its prices."""

    name: str
    prices: Prices


def load_markets(assignments: Sequence[str] = ()) -> tuple[Market, Market]:
    """Return on-demand and spot prices, with the user's prices (TYPE=USD) in both."""
    return (
        Market("on demand", add_prices(load_prices(), assignments)),
        Market("on spot", add_prices(load_prices(spot=True), assignments)),
    )


def command_text(
    by_kind: Mapping[str, Results], markets: Sequence[Market], notes: Sequence[str] = ()
) -> str:
    """Return the report. ``by_kind``: kind of device -> its results; one may be missing."""
    all_results = [by_kind[kind] for kind in (CPU, GPU) if kind in by_kind]
    titles = [first.title for results in all_results for first in results.measurements[:1]]
    parts = [
        [f"batchyard bench command: {(titles or ['nothing was measured'])[0]}"],
        _table(all_results, markets),
        _problems(all_results),
        _verdict(by_kind, markets),
        _notes(all_results, markets, notes),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _table(all_results: Sequence[Results], markets: Sequence[Market]) -> list[str]:
    """Return a row for each measurement, by size; empty if nothing succeeded."""
    measured = [
        (success.size, results, success) for results in all_results for success in results.successes
    ]
    measured.sort(key=lambda entry: entry[0])
    rows = [_cells(measurement, results, markets) for _, results, measurement in measured]
    return list(tables.columns(_HEAD, rows, frozenset({0, 1, 2}))) if rows else []


def _problems(all_results: Sequence[Results]) -> list[str]:
    return [
        f"{results.kind}, {measurement.label}: {measurement.outcome.value.upper()}:"
        f" {measurement.reason}"
        for results in all_results
        for measurement in results.measurements
        if measurement.outcome is not Outcome.OK
    ]


def _cells(measurement: Measurement, results: Results, markets: Sequence[Market]) -> list[str]:
    runs = len(measurement.warm_s) + (measurement.warm_s != (measurement.cold_s,))
    dollars = [
        tables.dollars_text(run_usd(measurement.median_s, market.prices.of(results.instance_type)))
        for market in markets
    ]
    return [
        measurement.label,
        "stand-in" if results.stands_for else results.device.upper(),
        results.instance_type or "?",
        tables.time_text(measurement.cold_s),
        tables.time_text(measurement.median_s),
        tables.spread_text(measurement),
        str(runs),
        *dollars,
    ]


def run_usd(seconds: float | None, usd_h: float | None) -> float | None:
    """Return the dollars of one run; None if its time or the price is unknown."""
    return None if seconds is None or usd_h is None else seconds / 3600 * usd_h


# -- which to take --


def _verdict(by_kind: Mapping[str, Results], markets: Sequence[Market]) -> list[str]:
    """Return the lines about which device to take; empty if there is nothing to compare."""
    if CPU not in by_kind or GPU not in by_kind or by_kind[GPU].stands_for:
        return []
    if not by_kind[CPU].measurements or not by_kind[GPU].measurements:
        return []
    comparisons = [
        (market.name, comparing.compare(by_kind[CPU], by_kind[GPU], market.prices))
        for market in markets
    ]
    lines = []
    for name, comparison in comparisons:
        rows = comparison.comparable_rows
        lines += [_take_line(name, comparison, row, len(rows) > 1) for row in rows]
    lines += [
        line for name, comparison in comparisons if (line := _threshold_line(name, comparison))
    ]
    for name, comparison in comparisons:
        lines += _break_even_lines(comparison, Measure.DOLLARS, f"{name}: ")
    # Times, and what could not be compared, are the same in every market.
    any_comparison = comparisons[0][1]
    lines += _break_even_lines(any_comparison, Measure.TIME)
    lines += [
        f"{row.first.label}: not compared: {row.reason}"
        for row in any_comparison.rows
        if row.reason
    ]
    return lines


def _break_even_lines(comparison: Comparison, measure: Measure, prefix: str = "") -> list[str]:
    return [
        f"{prefix}the GPU {even.verdict}"
        for even in comparison.break_evens
        if even.measure is measure
    ]


def _take_line(name: str, comparison: Comparison, row: Row, has_sizes: bool) -> str:
    size = f", {row.first.label}" if has_sizes else ""
    facts = []
    if row.saving is not None:
        facts.append(f"the GPU costs {_times(row.saving)} {'less' if row.saving >= 1 else 'more'}")
    if row.speed_up is not None:
        word = "faster" if row.speed_up >= 1 else "slower"
        facts.append(f"{'' if facts else 'the GPU '}is {_times(row.speed_up)} {word}")
    return f"take {name}{size}: {comparison.pick(row)}: {' and '.join(facts)}"


def _times(factor: float) -> str:
    factor = factor if factor >= 1 else 1 / factor if factor else float("inf")
    return tables.times_text(factor)


def _threshold_line(name: str, comparison: Comparison) -> str:
    """Return from which speed-up a GPU pays with these prices; empty if a price is unknown."""
    cpu_usd_h, gpu_usd_h = comparison.first.usd_h, comparison.second.usd_h
    if not cpu_usd_h or gpu_usd_h is None:
        return ""
    speed_ups = [tables.times_text(row.speed_up) for row in comparison.comparable_rows]
    measured = f"; measured: {', '.join(speed_ups)}" if speed_ups else ""
    return (
        f"a GPU pays {name} from a speed-up of {tables.times_text(gpu_usd_h / cpu_usd_h)}"
        f" (${gpu_usd_h:g} against ${cpu_usd_h:g} an hour){measured}"
    )


# -- notes --


def _notes(
    all_results: Sequence[Results], markets: Sequence[Market], notes: Sequence[str]
) -> list[str]:
    lines = list(notes)
    for results in all_results:
        lines += _result_notes(results, markets)
    if any(results.stands_for for results in all_results):
        lines.append(STAND_IN_NOTE)
    elif len(all_results) < 2:
        lines.append(f"only the {all_results[0].kind} was measured" if all_results else "no result")
    if any(results.noisy_count for results in all_results):
        lines.append(
            f"a spread above {NOISY * 100:.0f} % is marked !: other load, or a command whose time"
            " varies by itself"
        )
    lines.append(_START_NOTE)
    return [
        *(f"note: {line}" for line in lines),
        *(f"prices {market.name}: {market.prices.source}" for market in markets),
    ]


def _result_notes(results: Results, markets: Sequence[Market]) -> list[str]:
    if results.stands_for:
        return []
    lines = []
    if not results.ended:
        lines.append(f"{results.kind} was interrupted: only what was measured until then is here")
    lines += _price_notes(results, markets)
    listed = TYPES.get(results.instance_type or "")
    gpus = listed.gpus if listed else 0
    if results.device == GPU and gpus > 1:
        lines.append(f"{results.kind}: {results.instance_type} has {gpus} GPUs, and all are paid")
    if any(len(measurement.warm_s) == 1 for measurement in results.successes):
        lines.append(f"{results.kind}: too few runs for a spread; --runs 5 is better")
    return lines


def _price_notes(results: Results, markets: Sequence[Market]) -> list[str]:
    if results.instance_type is None:
        return [
            f"{results.kind}: the instance type is not known, so its price is ?;"
            f" name it with --{results.device}-type TYPE"
        ]
    if any(market.prices.of(results.instance_type) is None for market in markets):
        return [
            f"{results.kind}: no price is known for {results.instance_type}, so it is ?;"
            " give --price TYPE=USD"
        ]
    return []
