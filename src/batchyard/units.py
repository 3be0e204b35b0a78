"""Parse and format amounts of memory and time, and format text for messages. Pure.

For example:

    parse_memory("1.5GiB") == 1536      format_memory(1536) == "1.5GiB"
    parse_duration("1h30m") == 5400     format_duration(5400) == "1h30m"
"""

from __future__ import annotations

import json
import re

MIN_MEMORY_MIB = 4  # AWS Batch refuses a job with less
MAX_MEMORY_MIB = 2**30  # a pebibyte: more than any machine has, and it still fits a database
MAX_DURATION_S = 10 * 365 * 86_400

_MIB = 2**20
#: By first letter. Docker's "2g" and Kubernetes' "2Gi" are binary too: only "GB" is decimal.
_BINARY = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
#: number, letter of the unit, "ib", "i", "b" or nothing
MEMORY_PATTERN = r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([KkMmGgTt])([Ii][Bb]|[Ii]|[Bb])?"
#: days, hours, minutes, seconds; it also matches the empty text
DURATION_PATTERN = r"(?:([0-9]{1,12})d)?(?:([0-9]{1,12})h)?(?:([0-9]{1,12})m)?(?:([0-9]{1,12})s)?"
_NUMBER_PATTERN = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
_UNITS_OF_TIME = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


class AmountError(ValueError):
    """A text is not an amount of memory or time."""

    def __init__(self, problem: str, suggestion: str) -> None:
        self.problem = problem
        #: what to write instead
        self.suggestion = suggestion
        super().__init__(f"{problem}; {suggestion}")


def parse_memory(text: str) -> int:
    """Return an amount of memory in MiB, rounded up to a whole number.

    Binary units: KiB MiB GiB TiB, also K M G T and Ki Mi Gi Ti. Decimal units: KB MB GB TB. Raises
    AmountError.
    """
    text = text.strip()
    match = re.fullmatch(MEMORY_PATTERN, text)
    if not match:
        if re.fullmatch(_NUMBER_PATTERN, text):
            suggestion = f"write {text}MiB or {text}GiB, whichever is meant"
            raise AmountError(f"{quote(text)} has no unit", suggestion)
        suggestion = "write a number with a unit, like 2GiB or 512MiB"
        raise AmountError(f"{quote(text)} is not an amount of memory", suggestion)
    number, letter, suffix = match.groups()
    scale = _DECIMAL if (suffix or "").lower() == "b" else _BINARY
    # In whole numbers, since a float may round up to one MiB too many.
    integer_part, _, decimals = number.partition(".")
    scaled_bytes = int(integer_part + decimals) * scale[letter.lower()]
    divisor: int = _MIB * 10 ** len(decimals)
    mib = -(-scaled_bytes // divisor)
    if mib < MIN_MEMORY_MIB:
        suggestion = f"write at least {MIN_MEMORY_MIB}MiB"
        raise AmountError(f"{quote(text)} is too little memory", suggestion)
    if mib > MAX_MEMORY_MIB:
        raise AmountError(
            f"{quote(text)} is more memory than any machine has", "write at most 1024TiB"
        )
    return mib


def parse_duration(text: str) -> int:
    """Return the whole seconds of "90s", "30m", "1h", "2d" or "1h30m"; "90" is 90 seconds.

    Raises AmountError.
    """
    text = text.strip()
    match = re.fullmatch(
        DURATION_PATTERN, text + "s" if text.isascii() and text.isdigit() else text
    )
    if not match or not text:
        suggestion = "write a number with a unit, like 90s, 30m, 1h30m or 2d"
        raise AmountError(f"{quote(text)} is not a length of time", suggestion)
    counts = zip(match.groups(), _UNITS_OF_TIME, strict=True)
    total_s = sum(int(count or 0) * unit_s for count, (unit_s, _) in counts)
    if total_s < 1:
        raise AmountError(f"{quote(text)} is no time at all", "write at least 1s")
    if total_s > MAX_DURATION_S:
        raise AmountError(f"{quote(text)} is more than ten years", "write at most 3650d")
    return total_s


def format_memory(mib: int) -> str:
    """Return an amount of memory with at most one decimal: 512MiB, 1.5GiB, 16GiB."""
    if mib < 1024:
        return f"{mib}MiB"
    amount, unit = (mib / 1024, "GiB") if mib < 1024 * 1024 else (mib / (1024 * 1024), "TiB")
    return f"{amount:.1f}".removesuffix(".0") + unit


def format_duration(duration_s: float) -> str:
    """Return a duration in its two largest units: 0.4s, 42s, 1m30s, 2h5m, 3d."""
    if duration_s < 0:
        return "-" + format_duration(-duration_s)
    if duration_s < 9.95:
        return f"{duration_s:.1f}".removesuffix(".0") + "s"
    remaining_s = round(duration_s)
    parts: list[str] = []
    for unit_s, letter in _UNITS_OF_TIME:
        count, remaining_s = divmod(remaining_s, unit_s)
        if count or parts:
            parts.append(f"{count}{letter}" if count else "")
        if len(parts) == 2:
            break
    return "".join(parts)


def pluralize(number: int, noun: str, plural: str = "") -> str:
    """Return "1 step", "2,000 steps". ``plural`` is for nouns that take no "s"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


#: Control characters as `cat -v` and `less` show them. A tab stays a tab.
_VISIBLE = {code: f"^{chr(code ^ 0x40)}" for code in (*range(32), 0x7F) if code != 9}
_VISIBLE |= {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}
#: Characters that end a line in some terminals, or change the direction of text.
_VISIBLE |= {code: f"\\u{code:04x}" for code in (*range(0x2028, 0x202F), *range(0x2066, 0x206A))}


def show_controls(text: str) -> str:
    """Return the text with control characters made visible: ESC becomes `^[`.

    For output of commands inside our messages: a terminal would execute its escape sequences.
    """
    return text.translate(_VISIBLE)


def quote(text: str, max_length: int = 60) -> str:
    """Return the text in quotes on one line, shortened, with control characters as escapes."""
    if len(text) > max_length:
        text = text[: max_length - 3] + "..."
    return json.dumps(text, ensure_ascii=not text.isprintable())
