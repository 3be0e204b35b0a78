"""Copies between the memory of the host and of a device, which every GPU job needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from batchyard.bench.kits import Kit
from batchyard.bench.workload import GPU, Array, Arrays, Candidate, Function, Workload


def inputs(size: int, rng: np.random.Generator) -> Arrays:
    return {"data": rng.random(size * 2**18, dtype=np.float32)}


def reference(size: int, arrays: Mapping[str, Array]) -> Array:
    return arrays["data"]


def to_device(kit: Kit, size: int) -> Function:
    return _from_host(lambda data: kit.host(kit.to_host(data)), kit.to_device)


def pinned_to_device(kit: Any, size: int) -> Function:
    """Copy from pinned memory, which the device can read without the CPU."""
    return _from_host(
        lambda data: data.cpu().pin_memory(), lambda held: held.to(kit.device, non_blocking=True)
    )


def _from_host(hold: Callable[[Any], Any], copy: Callable[[Any], Any]) -> Function:
    held: list[Any] = []

    def call(data: Any) -> Any:
        if not held:
            held.append(hold(data))
        return copy(held[0])

    return call


def to_host(kit: Kit, size: int) -> Function:
    return lambda data: kit.host(kit.to_host(data))


def to_pinned_host(kit: Any, size: int) -> Function:
    out = kit.lib.empty(size * 2**18, dtype=kit.lib.float32, pin_memory=True)
    return lambda data: out.copy_(data, non_blocking=True)


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
        (
            Candidate("pinned", "torch", pinned_to_device),
            *(Candidate("pageable", kit, to_device) for kit in ("torch", "cupy", "opencl")),
        ),
    ),
    _workload(
        "copy-to-host",
        "Copy to the host",
        (
            Candidate("pinned", "torch", to_pinned_host),
            *(Candidate("pageable", kit, to_host) for kit in ("torch", "cupy", "opencl")),
        ),
    ),
)
