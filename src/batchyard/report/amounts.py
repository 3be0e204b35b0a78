"""Format durations, memory, shares and times for a page, and choose the ticks of its axes. Pure."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from batchyard import units

#: in place of a number that is not available
NONE = "\N{EN DASH}"

_ROUND_S = (
    *(1, 2, 5, 10, 15, 30),
    *(60 * n for n in (1, 2, 5, 10, 15, 30)),
    *(3600 * n for n in (1, 2, 3, 6, 12, 24)),
)
#: Ticks of a logarithmic axis: about 1, 2, 5, in seconds, minutes, hours and days.
_LOG_TICKS_S = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30),
    *(60 * n for n in (1, 2, 5, 10, 20, 30)),
    *(3600 * n for n in (1, 2, 5, 10)),
    *(86400 * n for n in (1, 2, 5, 10, 30)),
)
_COARSE_LOG_TICKS_S = {0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 36000, 86400, 864000}


def format_duration(seconds: float | None) -> str:
    """Return up to three digits below a minute, else the two largest units."""
    if seconds is None:
        return NONE
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
    return units.format_duration(seconds)


def format_kib(kib: int) -> str:
    """Return an amount of memory, for example "2 MiB"; 0 stands for an unknown amount."""
    if not kib:
        return NONE
    return f"{kib} KiB" if kib < 1024 else format_mib(round(kib / 1024))


def format_mib(mib: int) -> str:
    """Return an amount of memory with a space before the unit, for example "1.5 GiB"."""
    text = units.format_memory(mib)
    return f"{text[:-3]} {text[-3:]}"


def format_share(share: float | None) -> str:
    """Return a share from 0 to 1 in percent."""
    return NONE if share is None else f"{share * 100:.0f} %"


def format_count(number: int) -> str:
    """Return a number with thousands separators."""
    return f"{number:,}"


def format_time(at_ms: int) -> str:
    """Return a time in UTC, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def linear_ticks(span_s: float, max_ticks: int = 10) -> list[float]:
    """Return round times from 0 to ``span_s``."""
    min_step = max(span_s, 0.001) / max_ticks
    if min_step <= 0.5:
        power = 10 ** math.floor(math.log10(min_step))
        step = next(power * n for n in (1, 2, 5, 10) if power * n >= min_step * 0.9999)
    else:
        whole_days = math.ceil(min_step / 86400) * 86400
        step = next((n for n in _ROUND_S if n >= min_step), whole_days)
    return [n * step for n in range(int(span_s / step * 1.0001) + 1)]


def log_ticks(low_s: float, high_s: float) -> list[float]:
    """Return the ticks of a logarithmic axis; fewer where it spans more than four decades."""
    ticks = [tick for tick in _LOG_TICKS_S if low_s * 0.999 <= tick <= high_s * 1.001]
    if high_s / low_s <= 10_000:
        return ticks
    return [tick for tick in ticks if tick in _COARSE_LOG_TICKS_S]


def format_tick(seconds: float) -> str:
    """Return the label of a tick of a time axis."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:g} ms"
    if seconds < 60:
        return f"{seconds:g} s" if seconds else "0"
    return units.format_duration(seconds)
