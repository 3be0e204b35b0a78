"""Whether a result is right: finite, of the right shape, and near the reference. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchyard.bench.workload import Array, Sample


@dataclass(frozen=True, slots=True)
class Checked:
    #: the largest difference, as a part of the reference's largest value; None where it makes no sense
    error: float | None
    #: what is wrong; empty: nothing
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """Compares results with one reference."""

    expected: Array | Sample
    tolerance: float

    def __call__(self, result: Any) -> Checked:
        for array in result if isinstance(result, list) else [result]:
            wrong = array.size - int(np.count_nonzero(np.isfinite(array)))
            if wrong:
                return Checked(None, f"{wrong:,} of {array.size:,} values are NaN or infinite")
        worst = 0.0
        for index, expected in self._parts():
            part = np.asarray(result[index])
            if part.shape != expected.shape:
                return Checked(None, f"its shape is {part.shape}, and should be {expected.shape}")
            worst = max(worst, relative_error(part, expected))
        if worst > self.tolerance:
            return Checked(
                worst, f"the result is wrong by {worst:.2g} of its largest value, allowed is {self.tolerance:g}"
            )
        return Checked(worst)

    def _parts(self) -> Iterator[tuple[Any, Array]]:
        if isinstance(self.expected, Sample):
            yield from self.expected.parts
        else:
            yield ..., self.expected


def relative_error(actual: Array, expected: Array) -> float:
    if not expected.size:
        return 0.0
    scale = float(np.abs(expected).max()) or 1.0
    return float(np.abs(actual - expected).max()) / scale
