"""Whether a result is right: finite, of the right shape, and near the reference. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchyard.bench.workload import Array, Sample

#: NumPy's letters for what can be compared: yes and no, whole numbers, real and complex ones
_NUMBERS = "biufc"


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
        # A list is one of arrays where samples are taken from it; else it is what an array is made of.
        several = isinstance(result, list) and isinstance(self.expected, Sample)
        arrays = [np.asarray(one) for one in (result if several else [result])]
        for array in arrays:
            if problem := _unfit(array):
                return Checked(None, problem)
        worst = 0.0
        for index, expected in _parts(self.expected):
            part = np.asarray((arrays if several else arrays[0])[index])
            if part.shape != expected.shape:
                return Checked(None, f"its shape is {part.shape}, and should be {expected.shape}")
            error = relative_error(part, expected)
            # Asked of each: what is no number is not larger than anything.
            if not math.isfinite(error):
                return Checked(
                    None, "its difference to the reference is beyond what numbers can hold"
                )
            worst = max(worst, error)
        if worst > self.tolerance:
            return Checked(
                worst,
                f"the result is wrong by {worst:.2g} of its largest value, allowed is {self.tolerance:g}",
            )
        return Checked(worst)


def unfit_reference(expected: Any) -> str:
    """Why nothing can be compared with it; empty where it can."""
    parts = [part for _, part in _parts(expected)]
    if not sum(part.size for part in parts):
        return "there is nothing in it"
    return next((problem for problem in map(_unfit, parts) if problem), "")


def _parts(expected: Any) -> Iterator[tuple[Any, Array]]:
    parts = expected.parts if isinstance(expected, Sample) else [(..., expected)]
    for index, part in parts:
        yield index, np.asarray(part)


def _unfit(array: Array) -> str:
    if array.dtype.kind not in _NUMBERS:
        return f"it has no numbers, but {array.dtype} ({type(array.flat[0] if array.size else None).__name__})"
    wrong = array.size - int(np.count_nonzero(np.isfinite(array)))
    return f"{wrong:,} of {array.size:,} values are NaN or infinite" if wrong else ""


def relative_error(actual: Array, expected: Array) -> float:
    """In double precision, whatever they are: of small unsigned numbers, 1 less would be 255 more."""
    if not expected.size:
        return 0.0
    wide = np.complex128 if "c" in (actual.dtype.kind, expected.dtype.kind) else np.float64
    with np.errstate(all="ignore"):
        scale = float(np.abs(np.asarray(expected, dtype=wide)).max()) or 1.0
        most = float(np.abs(np.subtract(actual, expected, dtype=wide, casting="same_kind")).max())
    if not most and expected.dtype.kind in "iu" and not np.array_equal(actual, expected):
        most = 1.0  # whole numbers so large that doubles do not tell them apart
    return most / scale
