"""Call the functions of a workload and check what they return, since anybody may have written them.

Values that cannot be used raise InputError or the workload's own exception.
"""

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

#: exceptions that fail one workload and not the run; an interrupt is not among them
WORKLOAD_ERRORS = (Exception, SystemExit)


def describe_operation(workload: Workload, size: int) -> Measurement:
    """Return a measurement of this operation with the outcome SKIPPED and no times yet."""
    return Measurement(
        workload.name,
        workload.title,
        size,
        safe_line(_call("label", workload.label, size)),
        Outcome.SKIPPED,
        flops=call_amount("flops", workload.flops, size),
        traffic_bytes=call_amount("traffic_bytes", workload.traffic_bytes, size),
        is_about_bytes=bool(workload.is_about_bytes),
        tolerance=checked_number("its tolerance", workload.tolerance),
    )


def label_of(workload: Workload, size: int) -> str:
    """Return the workload's label of a size, or the default label if its function fails."""
    try:
        return safe_line(workload.label(size))
    except WORKLOAD_ERRORS:
        return plain_size(size)


def _call(name: str, function: Callable[[int], Any], size: int) -> Any:
    try:
        return function(size)
    except WORKLOAD_ERRORS as exc:
        raise InputError(f"{name}({size}): {describe_error(exc)}") from exc


def call_amount(
    name: str, function: Callable[[int], float | None] | None, size: int
) -> float | None:
    """Return the checked number of operations or bytes; None if the workload declares none."""
    amount = None if function is None else _call(name, function, size)
    return None if amount is None else checked_number(f"{name}({size})", amount)


def checked_number(name: str, value: Any) -> float:
    """Return ``value``, which may be a number of NumPy, as a float. Raises InputError."""
    number = math.nan if isinstance(value, str) else float(value)
    if number != 0 and not MIN_AMOUNT <= number <= MAX_AMOUNT:
        raise InputError(
            f"{name} is {safe_line(repr(value), 40)}, and must be 0,"
            f" or a number from {MIN_AMOUNT:g} to {MAX_AMOUNT:g}"
        )
    return number


def make_inputs(workload: Workload, size: int, seed: int) -> Arrays:
    """Return the inputs by name. Raises TypeError if they are not NumPy arrays."""
    # Each operation has its own generator: its inputs do not depend on the other operations.
    rng = np.random.default_rng([seed, zlib.crc32(workload.name.encode()), size])
    arrays = workload.inputs(size, rng)
    if not isinstance(arrays, dict) or not all(
        isinstance(array, np.ndarray) for array in arrays.values()
    ):
        raise TypeError("inputs() must return a dictionary of NumPy arrays")
    return arrays


def make_reference(workload: Workload, size: int, arrays: Arrays) -> Any:
    """Return the expected result of these inputs. Raises InputError if it cannot be used."""
    expected = workload.reference(size, arrays)
    if problem := checking.reference_problem(expected):
        raise InputError(problem)
    return expected


def crc_of(arrays: Arrays) -> int:
    """Return the CRC-32 of the names and bytes of the inputs."""
    crc = 0
    for name, array in sorted(arrays.items()):
        crc = zlib.crc32(
            np.ascontiguousarray(array).reshape(-1).view(np.uint8).data,
            zlib.crc32(name.encode(), crc),
        )
    return crc


# -- errors --


def describe_error(exc: BaseException) -> str:
    """Return one line about an exception of a workload."""
    if isinstance(exc, SystemExit):
        return f"it called sys.exit({safe_line(repr(exc.code), 60)})"
    if isinstance(exc, BatchyardError):  # its message is a whole sentence
        return safe_line(exc)
    return f"{type(exc).__name__}: {safe_line(exc)}"


def safe_line(value: object, max_length: int = 300) -> str:
    """Return the text of ``value`` on one line that can be encoded as UTF-8."""
    try:
        text = one_line(value, max_length)
    except WORKLOAD_ERRORS:
        return type(value).__name__
    return text.encode("utf-8", "backslashreplace").decode()
