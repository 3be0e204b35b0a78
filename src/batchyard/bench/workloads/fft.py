"""Fourier transform of a real image, float32."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from batchyard.bench.kits import Kit
from batchyard.bench.workload import Array, Arrays, Candidate, Function, Sample, Workload, square


def inputs(size: int, rng: np.random.Generator) -> Arrays:
    return {"image": rng.random((size, size), dtype=np.float32) - np.float32(0.5)}


def reference(size: int, arrays: Mapping[str, Array]) -> Sample:
    """Return a few frequencies, computed from the definition."""
    image, at = arrays["image"], np.arange(size)
    parts: list[tuple[Any, Array]] = []
    for down, across in ((0, 1), (1, 0), (size // 3, size // 5), (size - 2, size // 2)):
        columns = np.exp(-2j * math.pi * (across * at % size) / size)
        rows = np.exp(-2j * math.pi * (down * at % size) / size)
        parts.append(((down, across), np.asarray(rows @ (image @ columns))))
    return Sample(parts)


def with_numpy(kit: Kit, size: int) -> Function:
    return lambda image: np.fft.rfft2(image)


def with_scipy(kit: Kit, size: int) -> Function:
    from scipy.fft import rfft2  # type: ignore[import-untyped, unused-ignore]

    return lambda image: rfft2(image, workers=kit.threads)


def with_library(kit: Kit, size: int) -> Function:
    """Use PyTorch or CuPy, which have the same function."""
    return lambda image: kit.lib.fft.rfft2(image)


def with_opencv(kit: Kit, size: int) -> Function:
    return lambda image: kit.lib.dft(image, flags=kit.lib.DFT_COMPLEX_OUTPUT)


def opencv_packed(kit: Kit, size: int) -> Function:
    return lambda image: kit.lib.dft(image)


def _unpack(packed: Array) -> Array:
    """Return the complex numbers of OpenCV's packed layout.

    The layout has pairs of columns; in the first and the last column it has pairs of rows.
    """
    rows, columns = packed.shape
    out = np.zeros((rows, columns // 2 + 1), dtype=np.complex64)
    out[:, 1 : (columns + 1) // 2] = (
        packed[:, 1 : columns - 1 + columns % 2 : 2] + 1j * packed[:, 2::2]
    )
    out[:, 0] = _unpack_column(packed[:, 0])
    if columns % 2 == 0:
        out[:, -1] = _unpack_column(packed[:, -1])
    return out


def _unpack_column(packed: Array) -> Array:
    """Return a packed column with its second half, which mirrors the first."""
    n = len(packed)
    half = np.zeros(n // 2 + 1, dtype=np.complex64)
    half[0] = packed[0]
    half[1 : (n + 1) // 2] = packed[1 : n - 1 + n % 2 : 2] + 1j * packed[2::2]
    if n % 2 == 0:
        half[-1] = packed[-1]
    return np.concatenate([half, half[1 : (n + 1) // 2][::-1].conj()])


def _half(result: Array) -> Array:
    """Return complex numbers without the mirrored half that OpenCV adds."""
    return np.asarray(result.view(np.complex64)[:, : result.shape[1] // 2 + 1, 0])


WORKLOAD = Workload(
    name="fft",
    title="Fourier transform",
    sizes=(1024, 4096),
    quick_sizes=(256, 512),
    inputs=inputs,
    reference=reference,
    candidates=(
        Candidate("rfft2", "torch", with_library),
        Candidate("rfft2", "scipy", with_scipy),
        Candidate("rfft2", "numpy", with_numpy),
        Candidate("dft", "cv2", with_opencv, finish=_half),
        Candidate("dft, packed", "cv2", opencv_packed, finish=_unpack),
        Candidate("rfft2", "cupy", with_library),
    ),
    # The usual count for a real transform of n^2 points.
    flops=lambda n: 2.5 * n * n * math.log2(n * n),
    traffic_bytes=lambda n: 2 * 4.0 * n * n,
    memory_bytes=lambda n: 6 * 4.0 * n * n,
    label=square,
)
