"""Back-projection, the slowest step of a tomographic reconstruction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from batchyard.bench.kits import Kit
from batchyard.bench.workload import Array, Arrays, Candidate, Function, Sample, Workload, square

ANGLES = 180
_PROBES = 500
_NUMPY_ROWS = 32
#: angles that PyTorch interpolates in one call
_ANGLES_PER_CALL = 12
_OPENCL = """
__kernel void project(const int n, const int angles, __global const float *sinogram,
                      __constant float2 *table, __global float *out) {
    const int x = get_global_id(0), y = get_global_id(1);
    const float middle = (n - 1) / 2.0f;
    float sum = 0;
    for (int turn = 0; turn < angles; turn++) {
        const float2 direction = table[turn];
        const float offset = (x - middle) * direction.x + (y - middle) * direction.y;
        const float at = clamp(offset + middle, 0.0f, n - 1.0f);
        const int column = min((int)at, n - 2);
        __global const float *line = sinogram + (size_t)turn * n + column;
        sum += mix(line[0], line[1], at - column);
    }
    out[(size_t)y * n + x] = sum;
}
"""


def angles_rad() -> Array:
    return np.arange(ANGLES) * (math.pi / ANGLES)


def inputs(size: int, rng: np.random.Generator) -> Arrays:
    """Return random lines, smoothed as a detector does."""
    noise = rng.random((ANGLES, size + 8), dtype=np.float32) - np.float32(0.5)
    return {
        "sinogram": np.ascontiguousarray(
            np.lib.stride_tricks.sliding_window_view(noise, 9, axis=1).mean(axis=2)
        )
    }


def reference(size: int, arrays: Mapping[str, Array]) -> Sample:
    """Return the expected values of some pixels, in float64."""
    pixels = np.unique(np.linspace(0, size * size - 1, _PROBES).astype(np.int64))
    y, x = np.divmod(pixels, size)
    middle, total = (size - 1) / 2, np.zeros(len(pixels))
    for turn, angle in enumerate(angles_rad()):
        at = np.clip(
            (x - middle) * math.cos(angle) + (y - middle) * math.sin(angle) + middle, 0, size - 1
        )
        total += np.interp(at, np.arange(size), arrays["sinogram"][turn])
    return Sample([((y, x), total)])


def with_numpy(kit: Kit, size: int) -> Function:
    """Compute strips of rows that stay in the cache through all angles."""
    return lambda sinogram: np.concatenate(
        [
            _strip(
                np,
                sinogram,
                np.arange(size, dtype=np.float32),
                np.arange(top, min(top + _NUMPY_ROWS, size)),
                size,
            )
            for top in range(0, size, _NUMPY_ROWS)
        ]
    )


def _strip(xp: Any, sinogram: Any, columns: Any, rows: Any, size: int) -> Any:
    """Compute some rows with NumPy or CuPy (``xp``)."""
    middle = (size - 1) / 2
    x, y = columns - xp.float32(middle), (rows - middle).astype(xp.float32)
    total = xp.zeros((len(y), size), dtype=xp.float32)
    for turn, angle in enumerate(angles_rad().tolist()):
        at = (
            x[None, :] * xp.float32(math.cos(angle))
            + (y * xp.float32(math.sin(angle)) + xp.float32(middle))[:, None]
        )
        at = xp.clip(at, 0, size - 1)
        column = xp.minimum(at.astype(xp.int32), size - 2)
        line = sinogram[turn]
        low = line[column]
        total += low + (line[column + 1] - low) * (at - column)
    return total


def with_cupy(kit: Kit, size: int) -> Function:
    xp = kit.lib
    return lambda sinogram: _strip(
        xp, sinogram, xp.arange(size, dtype=xp.float32), xp.arange(size), size
    )


def with_torch(kit: Any, size: int) -> Function:
    """Treat each line as an image of one row; sample and add some angles per call."""
    torch, sample = kit.lib, kit.lib.nn.functional.grid_sample
    line = torch.linspace(-1, 1, size, device=kit.device)
    directions = [(math.cos(angle), math.sin(angle)) for angle in angles_rad().tolist()]

    def call(sinogram: Any) -> Any:
        total = torch.zeros((size, size), device=kit.device)
        for start in range(0, ANGLES, _ANGLES_PER_CALL):
            part = directions[start : start + _ANGLES_PER_CALL]
            across = torch.stack([line[None, :] * cos + line[:, None] * sin for cos, sin in part])
            grid = torch.stack((across, torch.zeros_like(across)), dim=-1)
            lines = sinogram[start : start + _ANGLES_PER_CALL, None, None, :]
            total += sample(lines, grid, padding_mode="border", align_corners=True).sum(dim=(0, 1))
        return total

    return call


def with_numba(kit: Kit, size: int) -> Function:
    from batchyard.bench.workloads import compiled

    return compiled.backprojection(kit.lib, size, angles_rad())


def with_opencl(kit: Any, size: int) -> Function:
    kernel, out = kit.build(_OPENCL, "project"), kit.empty((size, size))
    table = np.stack([np.cos(angles_rad()), np.sin(angles_rad())], axis=1).astype(np.float32)
    directions = kit.to_device(np.ascontiguousarray(table))

    def call(sinogram: Any) -> Any:
        kernel(
            *(kit.queue, (size, size), None, np.int32(size), np.int32(ANGLES)),
            *(sinogram.data, directions.data, out.data),
        )
        return out

    return call


WORKLOAD = Workload(
    name="backprojection",
    title=f"Back-projection, {ANGLES} angles",
    sizes=(256, 1024),
    quick_sizes=(64, 128),
    inputs=inputs,
    reference=reference,
    tolerance=1e-3,
    candidates=(
        Candidate("compiled loop", "numba", with_numba),
        Candidate("grid_sample, 12 angles at a time", "torch", with_torch),
        Candidate("strips of 32 rows", "numpy", with_numpy),
        Candidate("angle by angle", "cupy", with_cupy),
        Candidate("a pixel at a time", "opencl", with_opencl),
    ),
    # For each pixel and angle: position 4, interpolation 4, sum 1.
    flops=lambda n: 9.0 * ANGLES * n * n,
    traffic_bytes=lambda n: 4.0 * (n * n + ANGLES * n),
    memory_bytes=lambda n: 4.0 * n * n * (3 * _ANGLES_PER_CALL + 2),
    label=square,
)
