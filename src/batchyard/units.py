"""Amounts of memory and time as people write them, and back. Pure.

For example:

    memory_mib("1.5GiB") == 1536        show_memory(1536) == "1.5GiB"
    seconds("1h30m")     == 5400        show_duration(5400) == "1h30m"
"""

from __future__ import annotations

import json
import re

MIN_MEMORY_MIB = 4  # AWS Batch accepts no job with less
MAX_MEMORY_MIB = 2**30  # a pebibyte: beyond any machine, and far from what a database cannot hold
MAX_DURATION_S = 10 * 365 * 86_400

_MIB = 2**20
#: by first letter. Docker's "2g" and Kubernetes' "2Gi" are binary too: only "GB" is decimal.
_BINARY = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
#: number, letter of the unit, "ib", "i", "b" or nothing
MEMORY_PATTERN = r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([KkMmGgTt])([Ii][Bb]|[Ii]|[Bb])?"
#: days, hours, minutes, seconds; it also matches the empty text
DURATION_PATTERN = r"(?:([0-9]{1,12})d)?(?:([0-9]{1,12})h)?(?:([0-9]{1,12})m)?(?:([0-9]{1,12})s)?"
_MEMORY = re.compile(MEMORY_PATTERN)
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?")
_DURATION = re.compile(DURATION_PATTERN)
_UNITS_OF_TIME = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


class AmountError(ValueError):
    """A text is not an amount of memory or time."""

    def __init__(self, problem: str, suggestion: str) -> None:
        self.problem = problem
        #: what to write instead
        self.suggestion = suggestion
        super().__init__(f"{problem}; {suggestion}")


def memory_mib(text: str) -> int:
    """Whole MiB, rounded up. Units: KiB MiB GiB TiB (also K M G T, Ki Mi Gi Ti), and decimal KB MB GB TB."""
    text = text.strip()
    match = _MEMORY.fullmatch(text)
    if not match:
        if _NUMBER.fullmatch(text):
            raise AmountError(
                f"{quoted(text)} has no unit", f"write {text}MiB or {text}GiB, whichever is meant"
            )
        raise AmountError(
            f"{quoted(text)} is not an amount of memory",
            "write a number with a unit, like 2GiB or 512MiB",
        )
    number, letter, suffix = match.groups()
    scale = _DECIMAL if (suffix or "").lower() == "b" else _BINARY
    # In whole numbers, since a float may round up to one MiB too many.
    ones, _, decimals = number.partition(".")
    mib = -(
        -int(ones + decimals) * scale[letter.lower()] // (_MIB * int("1" + "0" * len(decimals)))
    )
    if mib < MIN_MEMORY_MIB:
        raise AmountError(
            f"{quoted(text)} is too little memory", f"write at least {MIN_MEMORY_MIB}MiB"
        )
    if mib > MAX_MEMORY_MIB:
        raise AmountError(
            f"{quoted(text)} is more memory than any machine has", "write at most 1024TiB"
        )
    return mib


def seconds(text: str) -> int:
    """Whole seconds of "90s", "30m", "1h", "2d", "1h30m"; a bare number is seconds already."""
    text = text.strip()
    match = _DURATION.fullmatch(text + "s" if text.isascii() and text.isdigit() else text)
    if not match or not text:
        raise AmountError(
            f"{quoted(text)} is not a length of time",
            "write a number with a unit, like 90s, 30m, 1h30m or 2d",
        )
    total = sum(
        int(n or 0) * unit for n, (unit, _) in zip(match.groups(), _UNITS_OF_TIME, strict=True)
    )
    if total < 1:
        raise AmountError(f"{quoted(text)} is no time at all", "write at least 1s")
    if total > MAX_DURATION_S:
        raise AmountError(f"{quoted(text)} is more than ten years", "write at most 3650d")
    return total


def show_memory(mib: int) -> str:
    """For people, to one decimal: 512MiB, 1.5GiB, 16GiB."""
    if mib < 1024:
        return f"{mib}MiB"
    amount, unit = (mib / 1024, "GiB") if mib < 1024 * 1024 else (mib / (1024 * 1024), "TiB")
    return f"{amount:.1f}".removesuffix(".0") + unit


def show_duration(duration_s: float) -> str:
    """For people, the two largest units: 0.4s, 42s, 1m30s, 2h5m, 3d."""
    if duration_s < 0:
        return "-" + show_duration(-duration_s)
    if duration_s < 9.95:
        return f"{duration_s:.1f}".removesuffix(".0") + "s"
    left = round(duration_s)
    parts: list[str] = []
    for unit, letter in _UNITS_OF_TIME:
        count, left = divmod(left, unit)
        if count or parts:
            parts.append(f"{count}{letter}" if count else "")
        if len(parts) == 2:
            break
    return "".join(parts)


def counted(number: int, noun: str, plural: str = "") -> str:
    """ "1 step", "2 steps"."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def quoted(text: str, at_most: int = 60) -> str:
    """In quotes, on one line, shortened, with whatever a terminal might obey made visible."""
    if len(text) > at_most:
        text = text[: at_most - 3] + "..."
    return json.dumps(text, ensure_ascii=not text.isprintable())
