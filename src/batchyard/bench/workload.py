"""Describe a workload: its inputs, the ways to compute it, the expected result. Values only.

Built-in workloads are in workloads/; a user's workload is a file of the same form. See
docs/benchmark.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

    from batchyard.bench.kits import Kit

Array: TypeAlias = "np.ndarray[Any, Any]"
Arrays: TypeAlias = "dict[str, Array]"
#: takes the inputs by name, on the device; returns the result, on the device
Function: TypeAlias = Callable[..., Any]

CPU, GPU = "cpu", "gpu"
KINDS = (CPU, GPU)
#: smallest and largest number of operations or bytes, apart from 0; anything else is a mistake
MIN_AMOUNT, MAX_AMOUNT = 1e-30, 1e30
MAX_SIZE = 2**63 - 1


def _unchanged_arrays(arrays: Arrays) -> Arrays:
    return arrays


def _unchanged_result(result: Any) -> Any:
    return result


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to compute a workload: a library, and how it is used."""

    #: what is special about this way, like "channels last"; shown after the library's name
    name: str
    #: the library: a key of discovery.LIBRARIES
    kit: str
    #: (kit, size) -> the function that is measured; preparing counts to the cold first call
    prepare: Callable[[Kit, int], Function]
    #: brings the inputs into the memory layout of this candidate, on the host; not measured
    arrange: Callable[[Arrays], Arrays] = _unchanged_arrays
    #: brings the result, on the host, into the reference's shape or a list of arrays; not measured
    finish: Callable[[Any], Any] = _unchanged_result
    #: kinds of devices on which this candidate makes sense
    kinds: tuple[str, ...] = KINDS
    #: takes its inputs on the host, and copies itself; for workloads with ``copies_included``
    takes_host_arrays: bool = False
    #: compiles for many seconds in its first call: not tried with --quick
    compiles: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """Expected parts of a result that is too large to compute twice: (index, expected part)."""

    parts: Sequence[tuple[Any, Array]]


def plain_size(size: int) -> str:
    """Return the default label of a size, like `1,000`."""
    return f"{size:,}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """An operation to measure, at several sizes."""

    #: name on the command line and in results: a-z, 0-9, hyphens
    name: str
    title: str
    sizes: tuple[int, ...]
    #: sizes with --quick
    quick_sizes: tuple[int, ...] = ()
    #: (size, seeded generator) -> NumPy arrays by name; the same on every device
    inputs: Callable[[int, np.random.Generator], Arrays]
    candidates: tuple[Candidate, ...]
    #: (size, inputs) -> the expected result or samples of it; in NumPy, float64 where it matters
    reference: Callable[[int, Mapping[str, Array]], Array | Sample]
    #: largest allowed difference to the reference, as a fraction of the reference's largest value
    tolerance: float = 1e-4
    #: floating-point operations of one call; None if the workload is not about them
    flops: Callable[[int], float] | None = None
    #: bytes that one call must move at least: each input read once, each result written once
    traffic_bytes: Callable[[int], float] | None = None
    #: whether tables show bytes per second instead of operations per second
    is_about_bytes: bool = False
    #: memory of one call for inputs, scratch and result; None: twice the inputs
    memory_bytes: Callable[[int], float] | None = None
    #: size -> its label in tables
    label: Callable[[int], str] = field(default=plain_size)
    kinds: tuple[str, ...] = KINDS
    #: the function itself copies to and from the device, so copies are not measured separately
    copies_included: bool = False

    def sizes_for(self, quick: bool) -> tuple[int, ...]:
        return (self.quick_sizes or self.sizes[:1]) if quick else self.sizes


def square(size: int) -> str:
    """Return the label of a square image or matrix, like `100 x 100`."""
    return f"{size} x {size}"
