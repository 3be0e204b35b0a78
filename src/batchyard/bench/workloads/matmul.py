"""Matrix multiplication, float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from batchyard.bench.kits import Kit
from batchyard.bench.workload import Array, Arrays, Candidate, Function, Sample, Workload, square

#: rows of the result that are computed again in float64
_ROWS = 4
_TILE = 16
#: elements of a column that each work item computes
_EACH = 4
_OPENCL = f"""
#define TILE {_TILE}
#define EACH {_EACH}
__kernel __attribute__((reqd_work_group_size(TILE, TILE / EACH, 1)))
void multiply(const int n, __global const float *a, __global const float *b, __global float *c) {{
    __local float left[TILE][TILE], right[TILE][TILE];
    const int x = get_local_id(0), y = get_local_id(1) * EACH;
    const int column = get_group_id(0) * TILE + x, row = get_group_id(1) * TILE + y;
    float sum[EACH] = {{0}};
    for (int from = 0; from < n; from += TILE) {{
        for (int i = 0; i < EACH; i++) {{
            left[y + i][x] = row + i < n && from + x < n ? a[(size_t)(row + i) * n + from + x] : 0;
            right[y + i][x] =
                from + y + i < n && column < n ? b[(size_t)(from + y + i) * n + column] : 0;
        }}
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < TILE; k++)
            for (int i = 0; i < EACH; i++) sum[i] = fma(left[y + i][k], right[k][x], sum[i]);
        barrier(CLK_LOCAL_MEM_FENCE);
    }}
    for (int i = 0; i < EACH; i++)
        if (row + i < n && column < n) c[(size_t)(row + i) * n + column] = sum[i];
}}
"""


def inputs(size: int, rng: np.random.Generator) -> Arrays:
    return {
        name: rng.random((size, size), dtype=np.float32) - np.float32(0.5) for name in ("a", "b")
    }


def reference(size: int, arrays: Mapping[str, Array]) -> Sample:
    rows = sorted({0, size // 3, size // 2, size - 1})[:_ROWS]
    return Sample([(row, arrays["a"][row].astype(np.float64) @ arrays["b"]) for row in rows])


def with_numpy(kit: Kit, size: int) -> Function:
    # Each call writes to the same memory, as in a program that multiplies repeatedly.
    out = np.empty((size, size), dtype=np.float32)
    return lambda a, b: np.matmul(a, b, out=out)


def with_torch(kit: Any, size: int) -> Function:
    out = kit.lib.empty((size, size), dtype=kit.lib.float32, device=kit.device)
    return lambda a, b: kit.lib.mm(a, b, out=out)


def with_scipy(kit: Kit, size: int) -> Function:
    from scipy.linalg.blas import sgemm  # type: ignore[import-untyped, unused-ignore]

    # BLAS stores columns: the transposed matrices are the same memory, and b'a' is (ab)'.
    out = np.zeros((size, size), dtype=np.float32)
    return lambda a, b: sgemm(1.0, b.T, a.T, c=out.T, overwrite_c=1).T


def with_opencv(kit: Kit, size: int) -> Function:
    out = np.empty((size, size), dtype=np.float32)
    return lambda a, b: kit.lib.gemm(a, b, 1.0, None, 0.0, out)


def with_cupy(kit: Kit, size: int) -> Function:
    out = kit.lib.empty((size, size), dtype="float32")
    return lambda a, b: kit.lib.matmul(a, b, out=out)


def with_opencl(kit: Any, size: int) -> Function:
    kernel, out = kit.build(_OPENCL, "multiply"), kit.empty((size, size))
    groups = -(-size // _TILE)
    everywhere, group = (groups * _TILE, groups * _TILE // _EACH), (_TILE, _TILE // _EACH)

    def call(a: Any, b: Any) -> Any:
        kernel(kit.queue, everywhere, group, np.int32(size), a.data, b.data, out.data)
        return out

    return call


WORKLOAD = Workload(
    name="matmul",
    title="Matrix multiplication",
    sizes=(1000, 5000, 8000, 10000),
    quick_sizes=(256, 512, 1024),
    inputs=inputs,
    reference=reference,
    candidates=(
        Candidate("matmul", "numpy", with_numpy),
        Candidate("mm", "torch", with_torch),
        Candidate("BLAS sgemm", "scipy", with_scipy),
        Candidate("gemm", "cv2", with_opencv),
        Candidate("matmul", "cupy", with_cupy),
        Candidate("tiles of 16", "opencl", with_opencl),
    ),
    flops=lambda n: 2.0 * n**3,
    traffic_bytes=lambda n: 3 * 4.0 * n**2,
    memory_bytes=lambda n: 3 * 4.0 * n**2,
    label=square,
)
