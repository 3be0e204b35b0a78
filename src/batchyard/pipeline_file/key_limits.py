"""Rules that the keys of a pipeline file and the settings of a plain list have in common."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from batchyard.batch import limits
from batchyard.errors import Place
from batchyard.pipeline import MAX_ARRAY_SIZE, MAX_RETRIES
from batchyard.pipeline_file.mistakes import Mistakes
from batchyard.units import pluralize

#: Key -> smallest and largest valid number.
LIMITS = {
    "array": (1, MAX_ARRAY_SIZE),
    "cpus": (1, 100_000),
    "gpus": (0, 100_000),
    "retries": (0, MAX_RETRIES),
    "max_running": (1, MAX_ARRAY_SIZE),
    "priority": (0, limits.MAX_PRIORITY),
}


def describe_range(minimum: int, maximum: int) -> str:
    """Return the words for the whole numbers from ``minimum`` to ``maximum``."""
    return f"a whole number from {minimum:,} to {maximum:,}"


def suggest_name(text: str, max_length: int, prefix: str) -> str:
    """Return the valid name that is nearest to ``text``.

    ``prefix`` is put before a name that does not begin with a letter.
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = re.sub("[^a-z0-9]+", "-", plain).strip("-")
    if not name[:1].isalpha():
        name = f"{prefix}-{name}".strip("-")
    return name[:max_length].strip("-")


def warn_of_short_timeout(timeout_s: int, at: Place, label: str, mistakes: Mistakes) -> None:
    """Add a warning where AWS Batch would refuse the timeout as too short."""
    minimum_s = limits.MIN_TIMEOUT_S
    if timeout_s < minimum_s:
        problem = f"{label} is {timeout_s} s, and AWS Batch refuses less than {minimum_s} s"
        mistakes.warn(at, problem, f"write {minimum_s}s or more to run it there")


def warn_of_idle_children(
    array: int | None, commands: Sequence[str] | None, at: Place, mistakes: Mistakes
) -> None:
    """Add a warning at ``at`` for an array with more children than commands."""
    if array and commands and array > len(commands):
        problem = (
            f"array is {array:,} for {pluralize(len(commands), 'command')}:"
            f" {pluralize(array - len(commands), 'child', 'children')} will have nothing to do"
        )
        mistakes.warn(at, problem, f"write at most {len(commands)}")
