"""Copies between the memory of the host and of a device, which every GPU job needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from batchyard.bench.kits import Kit
from batchyard.bench.workload import GPU, Array, Arrays, Candidate, Function, Workload


def inputs(size: int, rng: np.random.Generator) -> Arrays:
    return {"data": rng.random(size * 2**18, dtype=np.float32)}


def reference(size: int, arrays: Mapping[str, Array]) -> Array:
    return arrays["data"]


def to_device(kit: Kit, size: int) -> Function:
    held: list[Any] = []

    def call(data: Any) -> Any:
        if not held:
            held.append(kit.host(kit.to_host(data)))
        return kit.to_device(held[0])

    return call


def to_host(kit: Kit, size: int) -> Function:
    return lambda data: kit.to_host(data)


#: the kits of CUDA copy from and to pinned memory, which the device reads without the CPU
_MEMORY = {"torch": "pinned", "cupy": "pinned", "opencl": "pageable"}


def _workload(name: str, title: str, candidates: tuple[Candidate, ...]) -> Workload:
    return Workload(
        name=name,
        title=title,
        sizes=(1, 16, 256),
        quick_sizes=(16,),
        inputs=inputs,
        reference=reference,
        tolerance=0.0,
        candidates=candidates,
        traffic_bytes=lambda mib: mib * 2.0**20,
        is_about_bytes=True,
        memory_bytes=lambda mib: 2 * mib * 2.0**20,
        label=lambda mib: f"{mib} MiB",
        kinds=(GPU,),
        copies_included=True,
    )


WORKLOADS = (
    _workload(
        "copy-to-device",
        "Copy to the device",
        tuple(Candidate(memory, kit, to_device) for kit, memory in _MEMORY.items()),
    ),
    _workload(
        "copy-to-host",
        "Copy to the host",
        tuple(Candidate(memory, kit, to_host) for kit, memory in _MEMORY.items()),
    ),
)
