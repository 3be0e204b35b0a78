"""Loops that Numba compiles for the CPU. Each function takes Numba and returns a compiled loop."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from batchyard.bench.workload import Array, Function


def blur(numba: Any, size: int, taps: Array) -> Function:
    """Blur an image. ``taps``: weights of the middle and of each pair; a multiple of four pairs."""
    radius = len(taps) - 1
    edge = 3 * radius

    def rows(image: Array, out: Array, taps: Array) -> None:
        n, line = image.shape
        for y in numba.prange(n):
            row = np.empty(line + 2 * edge, dtype=np.float32)
            middle = row[edge : edge + line]
            for x in range(line):
                middle[x] = taps[0] * image[y, x]
            for k in range(1, radius + 1, 4):
                up0, up1, up2, up3 = abs(y - k), abs(y - k - 1), abs(y - k - 2), abs(y - k - 3)
                # The image is mirrored at its first and last row.
                down0, down1 = n - 1 - abs(n - 1 - y - k), n - 1 - abs(n - 2 - y - k)
                down2, down3 = n - 1 - abs(n - 3 - y - k), n - 1 - abs(n - 4 - y - k)
                for x in range(line):
                    middle[x] += (
                        taps[k] * (image[up0, x] + image[down0, x])
                        + taps[k + 1] * (image[up1, x] + image[down1, x])
                        + taps[k + 2] * (image[up2, x] + image[down2, x])
                        + taps[k + 3] * (image[up3, x] + image[down3, x])
                    )
            for i in range(3, edge + 3):
                # The same channel of the pixel that mirrors this one.
                mirrored = 2 * (i % 3) - i
                row[edge + mirrored] = row[edge + i]
                row[edge + line - 3 + i] = row[edge + line - 3 + mirrored]
            for x in range(line):
                out[y, x] = taps[0] * row[edge + x]
            for k in range(1, radius + 1, 4):
                for x in range(line):
                    at = edge + x
                    out[y, x] += (
                        taps[k] * (row[at - 3 * k] + row[at + 3 * k])
                        + taps[k + 1] * (row[at - 3 * k - 3] + row[at + 3 * k + 3])
                        + taps[k + 2] * (row[at - 3 * k - 6] + row[at + 3 * k + 6])
                        + taps[k + 3] * (row[at - 3 * k - 9] + row[at + 3 * k + 9])
                    )

    return _on_rows_of_pixels(numba.njit(rows, parallel=True, fastmath=True), size, taps)


def _on_rows_of_pixels(loop: Function, size: int, taps: Array) -> Function:
    out = np.empty((size, size, 3), dtype=np.float32)

    def call(image: Array) -> Array:
        loop(image.reshape(size, 3 * size), out.reshape(size, 3 * size), taps)
        return out

    return call


def triad(numba: Any, size: int, factor: float) -> Function:
    def elements(b: Array, c: Array, out: Array, factor: Any) -> None:
        for i in numba.prange(len(out)):
            out[i] = b[i] + factor * c[i]

    loop = numba.njit(elements, parallel=True, fastmath=True)
    out = np.empty(size, dtype=np.float32)

    def call(b: Array, c: Array) -> Array:
        loop(b, c, out, np.float32(factor))
        return out

    return call


def backprojection(numba: Any, size: int, angles_rad: Array) -> Function:
    directions = [(math.cos(angle), math.sin(angle)) for angle in angles_rad]
    table = np.array(directions, dtype=np.float32)
    middle = np.float32((size - 1) / 2)

    def rows(sinogram: Array, out: Array, table: Array, middle: Any) -> None:
        n = out.shape[0]
        last = np.float32(n - 1)
        for y in numba.prange(n):
            total = np.zeros(n, dtype=np.float32)
            for turn in range(len(table)):
                cos, sin = table[turn]
                line = sinogram[turn]
                first = (np.float32(y) - middle) * sin + middle - middle * cos
                for x in range(n):
                    position = min(max(first + np.float32(x) * cos, np.float32(0)), last)
                    column = min(np.int32(position), np.int32(n - 2))
                    part = position - np.float32(column)
                    total[x] += line[column] + part * (line[column + 1] - line[column])
            out[y] = total

    loop = numba.njit(rows, parallel=True, fastmath=True)
    out = np.empty((size, size), dtype=np.float32)

    def call(sinogram: Array) -> Array:
        loop(sinogram, out, table, middle)
        return out

    return call
