"""What measurements come to: medians, ratios within a round, bars, Markdown. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import mean, median


class Workload(StrEnum):
    #: nothing to print
    TRUE = "/bin/true"
    #: six bytes of output, kept for each child
    ECHO = "/bin/echo hello"


@dataclass(frozen=True, slots=True)
class Timing:
    """One whole command, from its start to its exit."""

    contender: str
    workload: str
    round: int
    #: children it ran; 1 where that is beside the point
    children: int
    wall_s: float
    #: user and system time of the command with all its children
    cpu_s: float
    #: of the largest process in it
    max_rss_mb: float
    #: CPUs that the rest of the machine kept busy meanwhile, the host's other guests included
    others_cpus: float
    #: what is wrong with what it did; empty: everything that should have happened was found
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
    #: faster than a bar or not, it did not do the work
    WRONG = "WRONG"
    SKIPPED = "SKIPPED"


@dataclass(frozen=True, slots=True)
class Bar:
    name: str
    asked: str
    measured: str
    verdict: Verdict


def spread_of(values: Iterable[float]) -> Spread:
    ordered = sorted(values)
    return Spread(median(ordered), ordered[0], ordered[-1])


def select(
    timings: Iterable[Timing], contender: str, workload: str, children: int | None = None
) -> list[Timing]:
    wanted = (contender, workload)
    return [
        t for t in timings if (t.contender, t.workload) == wanted and children in (None, t.children)
    ]


def ratios(
    of: Sequence[Timing], to: Sequence[Timing], cost: Callable[[Timing], float]
) -> list[float]:
    """``cost`` of one against the other, round by round: both then had the same neighbours on the machine.

    A round that measured something several times counts with the mean.
    """
    rounds = sorted({t.round for t in of} & {t.round for t in to})
    return [_in_round(n, of, cost) / _in_round(n, to, cost) for n in rounds]


def _in_round(number: int, timings: Sequence[Timing], cost: Callable[[Timing], float]) -> float:
    return mean(cost(t) for t in timings if t.round == number)


# -- bars -----------------------------------------------------------------------------------------------


def at_least(name: str, least: float, values: Sequence[float], measured: Sequence[Timing]) -> Bar:
    """A share that must be reached, 0.75 for 75 %."""
    spread = spread_of(values)
    is_met = spread.middle >= least
    return Bar(name, f"≥ {least:.0%}", percent_text(spread), _verdict(is_met, measured))


def at_most(
    name: str,
    most: float,
    values: Sequence[float],
    measured: Sequence[Timing],
    text: Callable[[float], str],
) -> Bar:
    spread = spread_of(values)
    is_met = spread.middle < most
    return Bar(name, f"< {text(most)}", spread_text(spread, text), _verdict(is_met, measured))


def skipped(name: str, asked: str, reason: str) -> Bar:
    return Bar(name, asked, reason, Verdict.SKIPPED)


def _verdict(is_met: bool, measured: Sequence[Timing]) -> Verdict:
    if any(t.problem for t in measured):
        return Verdict.WRONG
    return Verdict.PASS if is_met else Verdict.MISS


# -- Markdown -------------------------------------------------------------------------------------------


def percent_text(spread: Spread) -> str:
    return spread_text(spread, lambda value: f"{value:.0%}")


def spread_text(spread: Spread, text: Callable[[float], str]) -> str:
    middle, low, high = text(spread.middle), text(spread.low), text(spread.high)
    return middle if low == high else f"{middle} ({low} to {high})"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers_from: int = 1) -> str:
    """Columns from ``numbers_from`` on are aligned right."""
    rule = ["---" if column < numbers_from else "---:" for column in range(len(header))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *rows))


def rate_rows(
    timings: Sequence[Timing], contenders: Sequence[str], against: dict[Workload, str]
) -> list[list[str]]:
    """A row a contender: for each workload its children a second, and their share of the one it is held against."""
    rows = []
    for contender in contenders:
        row = [contender]
        for workload, other in against.items():
            own = select(timings, contender, workload)
            if not own:
                row += ["", ""]
                continue
            shares = ratios(own, select(timings, other, workload), lambda t: t.rate)
            row += [_rate_text(own), percent_text(spread_of(shares))]
        rows.append(row)
    return rows


def peer_rows(timings: Sequence[Timing]) -> list[list[str]]:
    names = dict.fromkeys(t.contender for t in timings)
    return [[name, _rate_text([t for t in timings if t.contender == name])] for name in names]


def _rate_text(timings: Iterable[Timing]) -> str:
    return spread_text(spread_of(t.rate for t in timings), lambda rate: f"{rate:,.0f}")


def bar_rows(bars: Iterable[Bar]) -> list[list[str]]:
    return [[bar.name, bar.asked, bar.measured, bar.verdict.value] for bar in bars]
