"""Check a result: numbers only, finite, of the right shape, near the reference. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchyard.bench.workload import Array, Sample

#: NumPy's letters of the types that can be compared: bool, int, unsigned int, float, complex
_NUMBERS = "biufc"


@dataclass(frozen=True, slots=True)
class CheckResult:
    #: largest difference, as a fraction of the reference's largest value; None if not comparable
    error: float | None
    #: what is wrong with the result; empty if nothing is
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """Compares results with one reference."""

    expected: Array | Sample
    tolerance: float

    def __call__(self, result: Any) -> CheckResult:
        # Samples may be taken from a list of arrays; any other list is converted to one array.
        if isinstance(result, list) and isinstance(self.expected, Sample):
            source: Any = [np.asarray(array) for array in result]
            arrays: list[Array] = source
        else:
            source = np.asarray(result)
            arrays = [source]
        for array in arrays:
            if problem := _array_problem(array):
                return CheckResult(None, problem)
        return self._compare(source)

    def _compare(self, source: Any) -> CheckResult:
        max_error = 0.0
        for index, expected in _parts(self.expected):
            part = np.asarray(source[index])
            if part.shape != expected.shape:
                return CheckResult(
                    None, f"its shape is {part.shape}, and should be {expected.shape}"
                )
            error = relative_error(part, expected)
            # Checked for each part, because max() ignores NaN.
            if not math.isfinite(error):
                return CheckResult(None, "its difference to the reference is too large for a float")
            max_error = max(max_error, error)
        if max_error > self.tolerance:
            return CheckResult(
                max_error,
                f"the result is wrong by {max_error:.2g} of its largest value,"
                f" allowed is {self.tolerance:g}",
            )
        return CheckResult(max_error)


def reference_problem(expected: Any) -> str:
    """Return why nothing can be compared with this reference; empty if it can be used."""
    parts = [part for _, part in _parts(expected)]
    if not sum(part.size for part in parts):
        return "there is nothing in it"
    return next((problem for problem in map(_array_problem, parts) if problem), "")


def _parts(expected: Any) -> Iterator[tuple[Any, Array]]:
    parts = expected.parts if isinstance(expected, Sample) else [(..., expected)]
    for index, part in parts:
        yield index, np.asarray(part)


def _array_problem(array: Array) -> str:
    if array.dtype.kind not in _NUMBERS:
        type_name = type(array.flat[0] if array.size else None).__name__
        return f"it has no numbers, but {array.dtype} ({type_name})"
    bad_count = array.size - int(np.count_nonzero(np.isfinite(array)))
    return f"{bad_count:,} of {array.size:,} values are NaN or infinite" if bad_count else ""


def relative_error(actual: Array, expected: Array) -> float:
    """Return the largest difference as a fraction of the largest expected value.

    Computed in double precision, since small unsigned integers would wrap around.
    """
    if not expected.size:
        return 0.0
    wide = np.complex128 if "c" in (actual.dtype.kind, expected.dtype.kind) else np.float64
    with np.errstate(all="ignore"):
        scale = float(np.abs(np.asarray(expected, dtype=wide)).max()) or 1.0
        difference = np.abs(np.subtract(actual, expected, dtype=wide, casting="same_kind"))
        max_difference = float(difference.max())
    is_integer = expected.dtype.kind in "iu"
    if not max_difference and is_integer and not np.array_equal(actual, expected):
        max_difference = 1.0  # integers so large that doubles cannot distinguish them
    return max_difference / scale
