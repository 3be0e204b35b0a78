"""What a workload is: its inputs, the ways to compute it, what must come out. Values only; touches nothing.

Ours are in workloads/; a user's own is a file of the same form. See docs/benchmark.md.
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


def _as_they_are(arrays: Arrays) -> Arrays:
    return arrays


def _as_it_is(result: Any) -> Any:
    return result


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to compute a workload: a library, and how it is used."""

    #: what is special about it, like "channels last"; the library's name is put before it
    name: str
    #: the library: a key of kits.LIBRARIES
    kit: str
    #: (kit, size) -> the function that is measured; what it prepares counts to the cold first call
    prepare: Callable[[Kit, int], Function]
    #: into the order in memory that this way wants, on the host, before anything is measured
    arrange: Callable[[Arrays], Arrays] = _as_they_are
    #: the result, on the host, into the shape that the reference has, or a list of arrays; not measured
    finish: Callable[[Any], Any] = _as_it_is
    #: where it makes sense, of what its library can use
    kinds: tuple[str, ...] = KINDS


@dataclass(frozen=True, slots=True)
class Sample:
    """Parts of a result that is too large to be computed a second time: index into it -> what must be there."""

    parts: Sequence[tuple[Any, Array]]


def plain_size(size: int) -> str:
    return f"{size:,}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    #: as it is called on the command line and in results: a-z, 0-9, hyphens
    name: str
    title: str
    sizes: tuple[int, ...]
    #: with --quick
    quick_sizes: tuple[int, ...] = ()
    #: (size, a seeded generator) -> NumPy arrays by name; the same on every device
    inputs: Callable[[int, np.random.Generator], Arrays]
    candidates: tuple[Candidate, ...]
    #: (size, inputs) -> what must come out, or samples of it; in plain NumPy, float64 where it matters
    reference: Callable[[int, Mapping[str, Array]], Array | Sample]
    #: the largest difference to the reference, as a part of the reference's largest value
    tolerance: float = 1e-4
    #: floating-point operations of one call; None where they are beside the point
    flops: Callable[[int], float] | None = None
    #: bytes that must move between memory and processor at least: inputs read once, results written once
    traffic_bytes: Callable[[int], float] | None = None
    #: the rate that is told: operations (False) or bytes (True)
    is_about_bytes: bool = False
    #: memory one call needs, inputs, scratch and result; None: twice the inputs
    memory_bytes: Callable[[int], float] | None = None
    #: a size in words
    label: Callable[[int], str] = field(default=plain_size)
    kinds: tuple[str, ...] = KINDS
    #: the function itself copies to and from the device, so it is not measured once more with copies
    copies_included: bool = False

    def sizes_for(self, quick: bool) -> tuple[int, ...]:
        return (self.quick_sizes or self.sizes[:1]) if quick else self.sizes


def square(size: int) -> str:
    return f"{size} x {size}"
