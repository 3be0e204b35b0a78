"""`make bench`: compare how fast batchyard and other tools start and record children.

Everything is measured in one run, in rounds of one contender after the other, so that other load on
the machine disturbs all of them alike. Ratios are computed within a round; the table has their
median, minimum and maximum. Prints Markdown tables to stdout, progress to stderr. See
docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import contenders
import machine
import peers
import scores
import startup
from contenders import Contender, Yard
from scores import Bar, Skipped, Timing, Verdict, Workload

_CACHE = Path(__file__).resolve().parent.parent / ".cache"
_PARTS = ("rates", "scale", "startup")
OURS, XARGS, FLOOR = "batchyard", "xargs -P", "C floor"
#: GNU parallel is slow, so it runs only this fraction of the children
_SLOW_DIVISOR = 10


@dataclass(frozen=True, slots=True)
class Sizes:
    children: int = 10_000
    many: int = 100_000
    rounds: int = 5
    many_rounds: int = 2
    repeats: int = 15
    lines: int = 5_000


QUICK = Sizes(children=500, many=2_000, rounds=2, many_rounds=1, repeats=3)


@dataclass(slots=True)
class Results:
    machine: str
    rates: list[Timing] = field(default_factory=list)
    scale: list[Timing] = field(default_factory=list)
    startup: list[Timing] = field(default_factory=list)
    peers: list[Timing] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def problems(self) -> list[Timing]:
        return [t for t in (*self.rates, *self.scale, *self.startup) if t.problem]


# -- measuring --


def measure_rates(yard: Yard, sizes: Sizes, results: Results) -> None:
    field: list[tuple[Contender, int]] = [
        (contenders.floor, sizes.children),
        (contenders.make, sizes.children),
        (contenders.xargs, sizes.children),
        (contenders.batchyard, sizes.children),
    ]
    if contenders.is_installed("parallel"):
        field.append((contenders.parallel, sizes.children // _SLOW_DIVISOR))
    else:
        results.skipped.append(Skipped("GNU parallel", "not installed"))
    for round in range(sizes.rounds):
        for workload in Workload:
            for contender, children in field:
                timing = contender(yard, workload, children, round)
                results.rates.append(timing)
                print_timing(timing, sizes.rounds)


def measure_scale(yard: Yard, sizes: Sizes, results: Results) -> None:
    for round in range(sizes.many_rounds):
        # The large run takes a minute; small runs before and after it see the same other load.
        for children in (sizes.children, sizes.many, sizes.children):
            timing = contenders.batchyard(yard, Workload.TRUE, children, round)
            results.scale.append(timing)
            print_timing(timing, sizes.many_rounds)


def print_timing(timing: Timing, rounds: int) -> None:
    """Print a line of progress to stderr."""
    contender = f"{timing.contender:12} {timing.workload:15} {timing.children:>7,}"
    columns = (
        f"round {timing.round + 1}/{rounds}",
        contender,
        f"{timing.wall_s:7.2f} s {timing.rate:6,.0f}/s {timing.max_rss_mb:4.0f} MB",
        f"others {timing.others_cpus:.1f} CPUs",
        timing.problem,
    )
    print(*columns, sep="  ", file=sys.stderr, flush=True)


# -- bars --


def bars_of(results: Results, sizes: Sizes) -> list[Bar]:
    return [
        *_rate_bars(results, sizes),
        *_scale_bars(results, sizes),
        *_startup_bars(results, sizes),
    ]


def _rate_bars(results: Results, sizes: Sizes) -> list[Bar]:
    bars = []
    for workload, other, minimum, conditions in (
        (
            Workload.TRUE,
            XARGS,
            0.75,
            "state and logs kept; against `xargs -P`, which keeps neither",
        ),
        (
            Workload.TRUE,
            FLOOR,
            0.85,
            "state and logs kept; against the C floor, which keeps neither",
        ),
        (Workload.ECHO, FLOOR, 0.85, "output captured; against the C floor with log files"),
    ):
        ours, theirs = (scores.select(results.rates, name, workload) for name in (OURS, other))
        if ours and theirs:
            name = f"{sizes.children:,} times `{workload}`, {conditions}"
            shares = scores.ratios(ours, theirs, lambda t: t.rate)
            bars.append(scores.at_least(name, minimum, shares, [*ours, *theirs]))
    return bars


def _scale_bars(results: Results, sizes: Sizes) -> list[Bar]:
    many = scores.select(results.scale, OURS, Workload.TRUE, sizes.many)
    few = scores.select(results.scale, OURS, Workload.TRUE, sizes.children)
    if not many:
        return []
    growth = scores.ratios(many, few, lambda t: t.child_us)
    memory = [t.max_rss_mb for t in many]
    cost_name = f"cost of a child among {sizes.many:,}, of that of one among {sizes.children:,}"
    memory_name = f"memory with {sizes.many:,} children"
    return [
        scores.at_most(cost_name, 1.10, growth, [*many, *few], lambda value: f"{value:.0%}"),
        scores.at_most(memory_name, 100, memory, many, lambda mb: f"{mb:.0f} MB"),
    ]


def _startup_bars(results: Results, sizes: Sizes) -> list[Bar]:
    bars = []
    for key, name, limit_ms in (
        (startup.ONE_TASK, "`batchyard run` of one task", 100),
        (startup.STATUS, "`batchyard status` of it", 100),
        (startup.VERSION, "`batchyard --version`", 60),
        (startup.VALIDATE, f"`batchyard validate` of {sizes.lines:,} lines", 1000),
    ):
        timings = scores.select(results.startup, key, "")
        reason = next((skip.reason for skip in results.skipped if skip.name == key), None)
        if timings:
            times = [timing.wall_s * 1000 for timing in timings]
            bars.append(scores.at_most(name, limit_ms, times, timings, lambda ms: f"{ms:,.0f} ms"))
        elif reason is not None:
            bars.append(scores.skip_bar(name, f"< {limit_ms:,} ms", reason))
    return bars


# -- report --


def report(results: Results, bars: Sequence[Bar]) -> str:
    """Return all tables and notes in Markdown."""
    other_cpus = scores.spread_of(
        t.others_cpus for t in (*results.rates, *results.scale, *results.startup)
    )
    meanwhile = scores.spread_text(other_cpus, lambda cpus: f"{cpus:.1f}")
    parts = [f"{results.machine}. Other work kept {meanwhile} CPUs busy meanwhile."]
    if results.rates:
        names = list(dict.fromkeys(t.contender for t in results.rates))
        header = [
            "children a second",
            "`/bin/true`",
            "of xargs",
            "`/bin/echo hello`, kept",
            "of the C floor",
        ]
        rows = scores.rate_rows(results.rates, names, {Workload.TRUE: XARGS, Workload.ECHO: FLOOR})
        parts.append(scores.table(header, rows))
    if bars:
        parts.append(
            scores.table(["bar", "asked", "measured", ""], scores.bar_rows(bars), numbers_from=4)
        )
    if results.peers:
        header = ["other schedulers, start-up not counted", "`/bin/true` a second"]
        parts.append(scores.table(header, scores.peer_rows(results.peers)))
    parts += [f"Not measured: {skip.name} ({skip.reason})." for skip in results.skipped]
    parts += [
        f"WRONG: {t.contender} {t.workload}, round {t.round + 1}: {t.problem}."
        for t in results.problems
    ]
    return "\n\n".join(parts)


def exit_code(results: Results, bars: Sequence[Bar], is_strict: bool) -> int:
    """Return 1 for work that was not done, and with ``is_strict`` for a missed bar."""
    if results.problems:
        return 1
    return int(is_strict and any(bar.verdict is Verdict.MISS for bar in bars))


def options() -> argparse.ArgumentParser:
    cpus = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description="Ours beside its peers: rates, ratios and bars.")
    parser.add_argument(
        "--slots", type=int, default=cpus, choices=range(1, cpus + 1), help="at once"
    )
    parser.add_argument("--rounds", type=int, help="rounds of the rates, instead of 5")
    parser.add_argument("--quick", action="store_true", help="few children: shows that it works")
    parser.add_argument(
        "--only", choices=_PARTS, action="append", help="just this part; may be repeated"
    )
    parser.add_argument(
        "--peers", action="store_true", help="also other schedulers, installed from PyPI"
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 where a bar is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw numbers")
    parser.add_argument(
        "--batchyard", type=shlex.split, metavar="COMMAND", help="another one to measure"
    )
    parser.set_defaults(batchyard=[str(Path(sys.executable).with_name("batchyard"))])
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = options().parse_args(arguments)
    sizes = QUICK if parsed.quick else Sizes()
    if parsed.rounds:
        sizes = Sizes(**{**asdict(sizes), "rounds": parsed.rounds})
    parts = parsed.only or _PARTS
    results = Results(machine.describe(parsed.slots))
    _CACHE.mkdir(exist_ok=True)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=_CACHE) as folder:
        yard = Yard(Path(folder), parsed.slots, parsed.batchyard, _flags(parsed.slots))
        if "startup" in parts:
            results.startup, skips = startup.measure(yard, sizes.repeats, sizes.lines)
            results.skipped += skips
        if "rates" in parts:
            measure_rates(yard, sizes, results)
        if "scale" in parts:
            measure_scale(yard, sizes, results)
        if parsed.peers:
            results.peers, skips = peers.measure(yard, _CACHE / "bench-venv", sizes.many_rounds)
            results.skipped += skips
    bars = bars_of(results, sizes)
    print(report(results, bars))
    print(f"took {time.monotonic() - begin:.0f} s", file=sys.stderr)
    if parsed.json:
        raw = {**asdict(results), "bars": [asdict(bar) for bar in bars]}
        parsed.json.write_text(json.dumps(raw, indent=1))
    return exit_code(results, bars, parsed.strict)


def _flags(slots: int) -> tuple[str, ...]:
    """Return the flags that limit batchyard to this many slots; by default it uses all CPUs."""
    return () if slots == len(os.sched_getaffinity(0)) else ("--max-running", str(slots))


if __name__ == "__main__":
    sys.exit(main())
