"""Time, memory and shares in words, and round numbers for the axes. Pure."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from batchyard.units import show_duration, show_memory

#: shown where there is no number
NONE = "\N{EN DASH}"

_ROUND_S = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    10800,
    21600,
    43200,
    86400,
)
#: for a logarithmic axis: 1, 2, 5 in the units in which people think
_LADDER_S = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30),
    *(
        60,
        120,
        300,
        600,
        1200,
        1800,
        3600,
        7200,
        18000,
        36000,
        86400,
        172800,
        432000,
        864000,
        2592000,
    ),
)


def duration(seconds: float | None) -> str:
    """Three figures at most below a minute, the two largest units above."""
    if seconds is None:
        return NONE
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
    return show_duration(seconds)


def memory(kib: int) -> str:
    if not kib:
        return NONE
    return f"{kib} KiB" if kib < 1024 else spaced_memory(round(kib / 1024))


def spaced_memory(mib: int) -> str:
    """As elsewhere in batchyard, with the space that print wants."""
    short = show_memory(mib)
    return f"{short[:-3]} {short[-3:]}"


def share(part: float | None) -> str:
    return NONE if part is None else f"{part * 100:.0f} %"


def count(number: int) -> str:
    return f"{number:,}"


def counted(number: int, word: str, plural: str = "") -> str:
    """1 child, 2 children."""
    return f"{number:,} {word if number == 1 else plural or word + 's'}"


def moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def elapsed_ticks(span_s: float, at_most: int = 10) -> list[float]:
    """Round times from 0 to ``span_s``, no more than ``at_most``."""
    rough = max(span_s, 0.001) / at_most
    if rough <= 0.5:
        power = 10 ** math.floor(math.log10(rough))
        step = next(power * n for n in (1, 2, 5, 10) if power * n >= rough * 0.9999)
    else:
        days = math.ceil(rough / 86400) * 86400
        step = next((n for n in _ROUND_S if n >= rough), days)
    return [n * step for n in range(int(span_s / step * 1.0001) + 1)]


def log_ticks(low_s: float, high_s: float) -> list[float]:
    """The rungs of the ladder from ``low_s`` to ``high_s``; whole decades only where it spans more than four."""
    rungs = [s for s in _LADDER_S if low_s * 0.999 <= s <= high_s * 1.001]
    if high_s / low_s <= 10_000:
        return rungs
    coarse = {0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 36000, 86400, 864000}
    return [s for s in rungs if s in coarse]


def tick_label(seconds: float) -> str:
    if 0 < seconds < 1:
        return f"{seconds * 1000:g} ms"
    if seconds < 60:
        return f"{seconds:g} s" if seconds else "0"
    return show_duration(seconds)
