"""Gaussian blur, sigma 5, of a colour image in float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from batchyard.bench.kits import Kit
from batchyard.bench.workload import Array, Arrays, Candidate, Function, Sample, Workload

SIGMA = 5.0
#: four sigmas to each side, as in SciPy, and in OpenCV for floats
RADIUS = 20
_PATCH = 16
_NUMPY_ROWS = 64
_OPENCL = f"""
#define RADIUS {RADIUS}
int mirrored(int at, int n) {{
    if (at < 0) at = -at;
    return at < n ? at : 2 * n - 2 - at;
}}
__kernel void along(const int n, const int step, const int line, __global const float *image,
                    __constant float *weights, __global float *out) {{
    const int where = get_global_id(0), which = get_global_id(1);
    const int at = (where / step) % n;
    float sum = 0;
    const size_t start = (size_t)which * line + where - (size_t)at * step;
    for (int i = -RADIUS; i <= RADIUS; i++)
        sum = fma(image[start + (size_t)mirrored(at + i, n) * step], weights[i + RADIUS], sum);
    out[(size_t)which * line + where] = sum;
}}
"""


def weights() -> Array:
    offsets = np.arange(-RADIUS, RADIUS + 1)
    bell = np.exp(-0.5 * (offsets / SIGMA) ** 2)
    return np.asarray(bell / bell.sum())


def inputs(size: int, rng: np.random.Generator) -> Arrays:
    return {"image": rng.random((size, size, 3), dtype=np.float32)}


def reference(size: int, arrays: Mapping[str, Array]) -> Sample:
    """Return the expected values of some patches, in float64."""
    patch, parts = min(_PATCH, size), []
    # Along the diagonal: a corner, the centre, the opposite corner.
    for start in {0, (size - patch) // 2, size - patch}:
        line = _mirror(np.arange(start - RADIUS, start + patch + RADIUS), size)
        piece = arrays["image"][np.ix_(line, line)].astype(np.float64)
        for axis in (0, 1):
            windows = np.lib.stride_tricks.sliding_window_view(piece, 2 * RADIUS + 1, axis=axis)
            piece = windows @ weights()
        part = slice(start, start + patch)
        parts.append(((part, part), piece))
    return Sample(parts)


def _mirror(at: Array, size: int) -> Array:
    """Return the positions, with those outside of the image mirrored at its edges."""
    at = np.abs(at)
    return np.asarray(np.where(at < size, at, 2 * size - 2 - at))


def with_numpy(kit: Kit, size: int) -> Function:
    """Filter along columns, then along rows, in strips that stay in the cache.

    Both neighbours at the same distance have the same weight, so they are added first.
    """
    taps = weights().astype(np.float32)[RADIUS:]

    def call(image: Array) -> Array:
        padded = np.pad(image, ((RADIUS, RADIUS), (0, 0), (0, 0)), mode="reflect")
        out = np.empty_like(image)
        for top in range(0, size, _NUMPY_ROWS):
            rows = min(_NUMPY_ROWS, size - top)
            strip = _symmetric(padded[top : top + rows + 2 * RADIUS], taps, axis=0)
            strip = np.pad(strip, ((0, 0), (RADIUS, RADIUS), (0, 0)), mode="reflect")
            out[top : top + rows] = _symmetric(strip, taps, axis=1)
        return out

    return call


def _symmetric(padded: Array, taps: Array, axis: int) -> Array:
    length = padded.shape[axis] - 2 * RADIUS

    def shift(by: int) -> Array:
        part = slice(RADIUS + by, RADIUS + by + length)
        return np.asarray(padded[part] if axis == 0 else padded[:, part])

    out = shift(0) * taps[0]
    pair = np.empty_like(out)
    for by in range(1, RADIUS + 1):
        np.add(shift(by), shift(-by), out=pair)
        pair *= taps[by]
        out += pair
    return np.asarray(out)


def with_scipy(kit: Kit, size: int) -> Function:
    from scipy.ndimage import gaussian_filter  # type: ignore[import-untyped, unused-ignore]

    return lambda image: gaussian_filter(
        image, (SIGMA, SIGMA, 0), mode="mirror", truncate=RADIUS / SIGMA
    )


def with_opencv(kit: Kit, size: int) -> Function:
    cv2, side = kit.lib, 2 * RADIUS + 1
    out = np.empty((size, size, 3), dtype=np.float32)
    return lambda image: cv2.GaussianBlur(
        image, (side, side), SIGMA, out, SIGMA, cv2.BORDER_REFLECT_101
    )


def opencv_separable(kit: Kit, size: int) -> Function:
    cv2, taps = kit.lib, weights().astype(np.float32)
    out = np.empty((size, size, 3), dtype=np.float32)
    return lambda image: cv2.sepFilter2D(
        image, -1, taps, taps, out, borderType=cv2.BORDER_REFLECT_101
    )


def with_torch(kit: Any, size: int) -> Function:
    """Convolve along each axis, channel by channel; the channels are the image's last axis."""
    functional = kit.lib.nn.functional
    taps = kit.to_device(kit.host(weights().astype(np.float32)))
    down, across = (
        taps.view(1, 1, -1, 1).repeat(3, 1, 1, 1),
        taps.view(1, 1, 1, -1).repeat(3, 1, 1, 1),
    )

    def call(image: Any) -> Any:
        planes = image.permute(2, 0, 1).unsqueeze(0)
        padded = functional.pad(planes, (RADIUS, RADIUS, RADIUS, RADIUS), mode="reflect")
        blurred = functional.conv2d(functional.conv2d(padded, down, groups=3), across, groups=3)
        return blurred[0].permute(1, 2, 0)

    return call


def with_numba(kit: Kit, size: int) -> Function:
    """Distribute rows over threads; add four pairs of neighbours in each pass over a row."""
    from batchyard.bench.workloads import compiled

    return compiled.blur(kit.lib, size, weights().astype(np.float32)[RADIUS:])


def with_cupy(kit: Any, size: int) -> Function:
    ndimage = kit.load("cupyx.scipy.ndimage")
    return lambda image: ndimage.gaussian_filter(
        image, (SIGMA, SIGMA, 0), mode="mirror", truncate=RADIUS / SIGMA
    )


def with_opencl(kit: Any, size: int) -> Function:
    kernel, taps = kit.build(_OPENCL, "along"), kit.to_device(weights().astype(np.float32))
    between, out = kit.empty((size, size, 3)), kit.empty((size, size, 3))
    line, whole = np.int32(3 * size), np.int32(3 * size * size)

    def call(image: Any) -> Any:
        sides = np.int32(size)
        kernel(
            kit.queue,
            (3 * size, size),
            None,
            sides,
            np.int32(3),
            line,
            image.data,
            taps.data,
            between.data,
        )
        kernel(
            kit.queue,
            (3 * size * size, 1),
            None,
            sides,
            line,
            whole,
            between.data,
            taps.data,
            out.data,
        )
        return out

    return call


WORKLOAD = Workload(
    name="blur",
    title="Gaussian blur, sigma 5",
    sizes=(2048,),
    quick_sizes=(256, 512),
    inputs=inputs,
    reference=reference,
    candidates=(
        Candidate("GaussianBlur", "cv2", with_opencv),
        Candidate("sepFilter2D", "cv2", opencv_separable),
        Candidate("symmetric, four pairs a pass", "numba", with_numba),
        Candidate("channels last, separable", "torch", with_torch),
        Candidate("gaussian_filter", "scipy", with_scipy),
        Candidate("symmetric, strips of 64 rows", "numpy", with_numpy),
        Candidate("gaussian_filter", "cupy", with_cupy),
        Candidate("separable", "opencl", with_opencl),
    ),
    # A multiplication and an addition for each tap, along each axis.
    flops=lambda n: 2.0 * 2 * (2 * RADIUS + 1) * 3 * n * n,
    traffic_bytes=lambda n: 2 * 4.0 * 3 * n * n,
    memory_bytes=lambda n: 4 * 4.0 * 3 * n * n,
    label=lambda n: f"{n} x {n} x 3",
)
