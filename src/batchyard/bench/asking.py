"""What a workload says of itself. It may be anybody's code: whatever it answers is looked at before it is believed."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from batchyard.bench import checking
from batchyard.bench.discovery import one_line
from batchyard.bench.results import Measurement, Outcome
from batchyard.bench.workload import MAX_AMOUNT, MIN_AMOUNT, Arrays, Workload, plain_size
from batchyard.errors import BatchyardError, InputError

#: what a workload has to answer for itself, and nothing else ends by it; an interrupt is not its doing
TROUBLE = (Exception, SystemExit)


def about_of(workload: Workload, size: int) -> Measurement:
    return Measurement(
        workload.name,
        workload.title,
        size,
        words(_asked("label", workload.label, size)),
        Outcome.SKIPPED,
        flops=amount("flops", workload.flops, size),
        traffic_bytes=amount("traffic_bytes", workload.traffic_bytes, size),
        is_about_bytes=bool(workload.is_about_bytes),
        tolerance=number("its tolerance", workload.tolerance),
    )


def label_of(workload: Workload, size: int) -> str:
    """The workload's own, or a plain one if it has none to give."""
    try:
        return words(workload.label(size))
    except TROUBLE:
        return plain_size(size)


def _asked(name: str, function: Callable[[int], Any], size: int) -> Any:
    try:
        return function(size)
    except TROUBLE as exc:
        raise InputError(f"{name}({size}): {described(exc)}") from exc


def amount(name: str, function: Callable[[int], float | None] | None, size: int) -> float | None:
    value = None if function is None else _asked(name, function, size)
    return None if value is None else number(f"{name}({size})", value)


def number(name: str, value: Any) -> float:
    """As Python's own: a workload may well count with NumPy's."""
    found = math.nan if isinstance(value, str) else float(value)
    if found != 0 and not MIN_AMOUNT <= found <= MAX_AMOUNT:
        said = words(repr(value), 40)
        raise InputError(
            f"{name} is {said}, and must be 0, or a number from {MIN_AMOUNT:g} to {MAX_AMOUNT:g}"
        )
    return found


def inputs_of(workload: Workload, size: int, seed: int) -> Arrays:
    # Of its own for each operation: the same numbers, whatever else is measured in the same run.
    given = workload.inputs(
        size, np.random.default_rng([seed, zlib.crc32(workload.name.encode()), size])
    )
    if not isinstance(given, dict) or not all(
        isinstance(array, np.ndarray) for array in given.values()
    ):
        raise TypeError("inputs() must return a dictionary of NumPy arrays")
    return given


def reference_of(workload: Workload, size: int, given: Arrays) -> Any:
    expected = workload.reference(size, given)
    if problem := checking.unfit_reference(expected):
        raise InputError(problem)
    return expected


def crc_of(given: Arrays) -> int:
    crc = 0
    for name, array in sorted(given.items()):
        crc = zlib.crc32(
            np.ascontiguousarray(array).reshape(-1).view(np.uint8).data,
            zlib.crc32(name.encode(), crc),
        )
    return crc


# -- what went wrong --------------------------------------------------------------------------------------------


def described(exc: BaseException) -> str:
    if isinstance(exc, SystemExit):
        return f"it called sys.exit({words(repr(exc.code), 60)})"
    # Ours are sentences already.
    return words(exc) if isinstance(exc, BatchyardError) else f"{type(exc).__name__}: {words(exc)}"


def words(value: object, at_most: int = 300) -> str:
    """On one line, and fit to be written to a file."""
    try:
        text = one_line(value, at_most)
    except TROUBLE:
        return type(value).__name__
    return text.encode("utf-8", "backslashreplace").decode()
