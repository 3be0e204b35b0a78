"""Triad, a = b + 3c: measures the bandwidth of the memory."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from batchyard.bench.kits import Kit
from batchyard.bench.workload import Array, Arrays, Candidate, Function, Sample, Workload

_FACTOR = 3.0
#: elements that stay in a core's cache between the multiplication and the addition
_BLOCK = 1 << 16
_PROBES = 1 << 16
_OPENCL = """
__kernel void triad(__global const float4 *b, __global const float4 *c, const float factor,
                    __global float4 *a) {
    const size_t i = get_global_id(0);
    a[i] = b[i] + factor * c[i];
}
"""


def inputs(size: int, rng: np.random.Generator) -> Arrays:
    return {name: rng.random(size, dtype=np.float32) for name in ("b", "c")}


def reference(size: int, arrays: Mapping[str, Array]) -> Sample:
    picked = slice(None, None, max(1, size // _PROBES))
    return Sample(
        [(picked, arrays["b"][picked].astype(np.float64) + _FACTOR * arrays["c"][picked])]
    )


def _blocks(b: Array, c: Array, out: Array, start: int, end: int) -> None:
    factor = np.float32(_FACTOR)
    for at in range(start, end, _BLOCK):
        part = slice(at, min(at + _BLOCK, end))
        np.multiply(c[part], factor, out=out[part])
        np.add(out[part], b[part], out=out[part])


def with_numpy(kit: Kit, size: int) -> Function:
    out = np.empty(size, dtype=np.float32)

    def call(b: Array, c: Array) -> Array:
        _blocks(b, c, out, 0, size)
        return out

    return call


def in_threads(kit: Kit, size: int) -> Function:
    """Use several threads: NumPy lets other threads run while it computes."""
    out, pool = np.empty(size, dtype=np.float32), ThreadPoolExecutor(kit.threads)
    edges = [size * n // kit.threads for n in range(kit.threads + 1)]

    def call(b: Array, c: Array) -> Array:
        list(pool.map(lambda n: _blocks(b, c, out, edges[n], edges[n + 1]), range(kit.threads)))
        return out

    return call


def with_torch(kit: Any, size: int) -> Function:
    out = kit.lib.empty(size, dtype=kit.lib.float32, device=kit.device)
    return lambda b, c: kit.lib.add(b, c, alpha=_FACTOR, out=out)


def with_opencv(kit: Kit, size: int) -> Function:
    out = np.empty((1, size), dtype=np.float32)
    return lambda b, c: kit.lib.scaleAdd(c, _FACTOR, b, out)


def with_numba(kit: Kit, size: int) -> Function:
    from batchyard.bench.workloads import compiled

    return compiled.triad(kit.lib, size, _FACTOR)


def with_cupy(kit: Kit, size: int) -> Function:
    fused = kit.lib.fuse(lambda b, c: b + kit.lib.float32(_FACTOR) * c)
    return lambda b, c: fused(b, c)


def with_opencl(kit: Any, size: int) -> Function:
    kernel, out = kit.build(_OPENCL, "triad"), kit.empty((size,))

    def call(b: Any, c: Any) -> Any:
        kernel(kit.queue, (size // 4,), None, b.data, c.data, np.float32(_FACTOR), out.data)
        return out

    return call


WORKLOAD = Workload(
    name="triad",
    title="Triad, a = b + 3c",
    sizes=(1 << 22, 1 << 26),
    quick_sizes=(1 << 20,),
    inputs=inputs,
    reference=reference,
    tolerance=1e-6,
    candidates=(
        Candidate("add", "torch", with_torch),
        Candidate("compiled loop", "numba", with_numba),
        Candidate("blocks in threads", "numpy", in_threads),
        Candidate("blocks", "numpy", with_numpy),
        Candidate(
            "scaleAdd",
            "cv2",
            with_opencv,
            lambda a: {k: v[None] for k, v in a.items()},
            lambda r: r[0],
        ),
        Candidate("fused", "cupy", with_cupy),
        Candidate("four at a time", "opencl", with_opencl),
    ),
    flops=lambda n: 2.0 * n,
    traffic_bytes=lambda n: 3 * 4.0 * n,
    is_about_bytes=True,
    memory_bytes=lambda n: 3 * 4.0 * n,
    label=lambda n: f"{n / 2**20:g} Mi elements" if n >= 2**20 else f"{n:,} elements",
)
