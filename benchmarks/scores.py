"""Summarise measurements: medians, ratios within a round, bars, Markdown tables. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import mean, median


class Workload(StrEnum):
    """The command that children run."""

    #: prints nothing
    TRUE = "/bin/true"
    #: prints six bytes, which are kept for each child
    ECHO = "/bin/echo hello"


@dataclass(frozen=True, slots=True)
class Timing:
    """The resources that one whole command used, from its start to its exit."""

    contender: str
    workload: str
    round: int
    #: number of children; 1 if the command runs none
    children: int
    wall_s: float
    #: user and system time of the command and all its children
    cpu_s: float
    #: peak memory of its largest process
    max_rss_mb: float
    #: CPUs that other work kept busy meanwhile, guests on the same host included
    others_cpus: float
    #: what the command did wrong; empty if its work was complete
    problem: str = ""

    @property
    def rate(self) -> float:
        return self.children / self.wall_s

    @property
    def child_us(self) -> float:
        return self.wall_s / self.children * 1e6


@dataclass(frozen=True, slots=True)
class Spread:
    middle: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that could not be measured, and why."""

    name: str
    reason: str


class Verdict(StrEnum):
    PASS = "PASS"
    MISS = "MISS"
    #: the work was not done, whatever the speed
    WRONG = "WRONG"
    SKIPPED = "SKIPPED"


@dataclass(frozen=True, slots=True)
class Bar:
    """A required value, and the measured one."""

    name: str
    required: str
    measured: str
    verdict: Verdict


def spread_of(values: Iterable[float]) -> Spread:
    ordered = sorted(values)
    return Spread(median(ordered), ordered[0], ordered[-1])


def select(
    timings: Iterable[Timing], contender: str, workload: str, children: int | None = None
) -> list[Timing]:
    return [
        timing
        for timing in timings
        if (timing.contender, timing.workload) == (contender, workload)
        and children in (None, timing.children)
    ]


def ratios(
    of: Sequence[Timing], to: Sequence[Timing], cost: Callable[[Timing], float]
) -> list[float]:
    """Return ``cost`` of one contender divided by that of the other, for each round.

    Within a round, both had the same other load on the machine. Several timings of a round count
    with their mean.
    """
    rounds = sorted({t.round for t in of} & {t.round for t in to})
    return [_in_round(n, of, cost) / _in_round(n, to, cost) for n in rounds]


def _in_round(number: int, timings: Sequence[Timing], cost: Callable[[Timing], float]) -> float:
    return mean(cost(t) for t in timings if t.round == number)


# -- bars --


def at_least(name: str, minimum: float, values: Sequence[float], measured: Sequence[Timing]) -> Bar:
    """Return a bar whose median must reach ``minimum``, a fraction like 0.75."""
    spread = spread_of(values)
    is_met = spread.middle >= minimum
    return Bar(name, f"≥ {minimum:.0%}", percent_text(spread), _verdict(is_met, measured))


def at_most(
    name: str,
    limit: float,
    values: Sequence[float],
    measured: Sequence[Timing],
    text: Callable[[float], str],
) -> Bar:
    """Return a bar whose median must be below ``limit``."""
    spread = spread_of(values)
    is_met = spread.middle < limit
    return Bar(name, f"< {text(limit)}", spread_text(spread, text), _verdict(is_met, measured))


def skip_bar(name: str, required: str, reason: str) -> Bar:
    return Bar(name, required, reason, Verdict.SKIPPED)


def _verdict(is_met: bool, measured: Sequence[Timing]) -> Verdict:
    if any(t.problem for t in measured):
        return Verdict.WRONG
    return Verdict.PASS if is_met else Verdict.MISS


# -- Markdown --


def percent_text(spread: Spread) -> str:
    return spread_text(spread, lambda value: f"{value:.0%}")


def spread_text(spread: Spread, text: Callable[[float], str]) -> str:
    middle, low, high = text(spread.middle), text(spread.low), text(spread.high)
    return middle if low == high else f"{middle} ({low} to {high})"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers_from: int = 1) -> str:
    """Return a Markdown table; columns from ``numbers_from`` on are aligned right."""
    rule = ["---" if column < numbers_from else "---:" for column in range(len(header))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *rows))


def rate_rows(
    timings: Sequence[Timing], contenders: Sequence[str], against: dict[Workload, str]
) -> list[list[str]]:
    """Return one row per contender: for each workload, its rate and its fraction of another's rate.

    ``against``: workload -> the contender to compare with.
    """
    rows = []
    for contender in contenders:
        row = [contender]
        for workload, other in against.items():
            selected = select(timings, contender, workload)
            if not selected:
                row += ["", ""]
                continue
            fractions = ratios(selected, select(timings, other, workload), lambda t: t.rate)
            row += [_rate_text(selected), percent_text(spread_of(fractions))]
        rows.append(row)
    return rows


def peer_rows(timings: Sequence[Timing]) -> list[list[str]]:
    names = dict.fromkeys(t.contender for t in timings)
    return [[name, _rate_text([t for t in timings if t.contender == name])] for name in names]


def _rate_text(timings: Iterable[Timing]) -> str:
    return spread_text(spread_of(t.rate for t in timings), lambda rate: f"{rate:,.0f}")


def bar_rows(bars: Iterable[Bar]) -> list[list[str]]:
    return [[bar.name, bar.required, bar.measured, bar.verdict.value] for bar in bars]
