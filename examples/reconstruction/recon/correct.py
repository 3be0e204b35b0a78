"""Flat-field correction: counts -> line integrals."""

from __future__ import annotations

import numpy as np

#: A pixel that answers to less than this share of what the detector's typical pixel does is dead.
LEAST_RESPONSE = 0.25
LEAST_TRANSMISSION = 1e-4  # keeps the logarithm finite where noise ate all the light


def find_bad_pixels(dark: np.ndarray, flat: np.ndarray) -> np.ndarray:
    """The mask of pixels which say about the same with and without light: stuck at nothing, or at full."""
    response = flat.mean(axis=0) - dark.mean(axis=0)
    return response < LEAST_RESPONSE * np.median(response)


def line_integrals(counts: np.ndarray, dark: np.ndarray, flat: np.ndarray) -> np.ndarray:
    """Correct `counts` (projections, rows, columns) by the mean dark and flat frame; float32."""
    bad = find_bad_pixels(dark, flat)
    offset = dark.mean(axis=0)
    light = np.where(bad, 1.0, flat.mean(axis=0) - offset)
    transmission = repair((counts - offset) / light, bad)
    return -np.log(np.clip(transmission, LEAST_TRANSMISSION, None)).astype(np.float32)


def repair(images: np.ndarray, bad: np.ndarray) -> np.ndarray:
    """A copy of `images` (n, rows, columns), each bad pixel replaced by the mean of its good neighbours."""
    repaired = images.copy()
    for row, column in np.argwhere(bad):
        rows, columns = _good_neighbours(bad, row, column)
        repaired[:, row, column] = images[:, rows, columns].mean(axis=1)
    return repaired


def _good_neighbours(bad: np.ndarray, row: int, column: int) -> tuple[np.ndarray, np.ndarray]:
    for reach in range(1, max(bad.shape)):
        top, left = max(row - reach, 0), max(column - reach, 0)
        window = ~bad[top : row + reach + 1, left : column + reach + 1]
        if window.any():
            rows, columns = np.nonzero(window)
            return rows + top, columns + left
    raise ValueError("every pixel of the detector is bad")
