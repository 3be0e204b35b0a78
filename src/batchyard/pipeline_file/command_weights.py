"""The word of each command that is its weight. Pure, and without what reads YAML."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from batchyard import child_patterns
from batchyard.units import quote

#: A number without a sign, with as many digits as Python prints of any.
_WEIGHT = re.compile(r"([0-9]{1,25}(\.[0-9]{0,25})?|\.[0-9]{1,25})([eE][+-]?[0-9]{1,3})?")


class WeightError(ValueError):
    """A command has no such word, or one that is not a number."""

    def __init__(self, problem: str, suggestion: str) -> None:
        super().__init__(problem)
        self.problem, self.suggestion = problem, suggestion


def parse_weight(text: str) -> float | None:
    """Return the text as a finite number that is not negative; None if it is none."""
    if not _WEIGHT.fullmatch(text):
        return None
    weight = float(text)
    return weight if math.isfinite(weight) else None


def read_weights(placeholder: str, commands: Sequence[str]) -> list[float]:
    """Return the number that each command has as the word. Raises WeightError for the first fault.

    ``placeholder``: `${command.WORD}`.
    """
    weights = []
    for command in commands:
        try:
            word = child_patterns.find_word(placeholder, command)
        except ValueError as exc:
            problem = f"weight is {quote(placeholder)}, and {exc}"
            raise WeightError(problem, "name a word that every command has") from exc
        weight = parse_weight(word)
        if weight is None:
            problem = (
                f"weight is {quote(placeholder)}, which is {quote(word[:40])} in the command"
                f" {quote(command[:80])}"
            )
            raise WeightError(problem, "name a word that is a number, 0 or more")
        weights.append(weight)
    return weights
