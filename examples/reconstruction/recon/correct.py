"""Flat-field correction: convert detector counts to line integrals."""

from __future__ import annotations

import numpy as np

#: A pixel is bad if its response to light is below this share of the median response.
MIN_RESPONSE = 0.25
#: Lower bound of the transmission: keeps the logarithm finite where no light was counted.
MIN_TRANSMISSION = 1e-4


def find_bad_pixels(dark: np.ndarray, flat: np.ndarray) -> np.ndarray:
    """Return the mask of dead and hot pixels: their counts hardly change with the light."""
    response = flat.mean(axis=0) - dark.mean(axis=0)
    return response < MIN_RESPONSE * np.median(response)


def line_integrals(counts: np.ndarray, dark: np.ndarray, flat: np.ndarray) -> np.ndarray:
    """Return the line integrals (float32) of `counts` (projections, rows, columns).

    The mean dark frame is subtracted, and the counts are divided by the mean flat frame.
    """
    bad = find_bad_pixels(dark, flat)
    offset = dark.mean(axis=0)
    light = np.where(bad, 1.0, flat.mean(axis=0) - offset)
    transmission = repair((counts - offset) / light, bad)
    return -np.log(np.clip(transmission, MIN_TRANSMISSION, None)).astype(np.float32)


def repair(images: np.ndarray, bad: np.ndarray) -> np.ndarray:
    """Return a copy of `images` (n, rows, columns) without bad pixels.

    Each bad pixel has the mean of its nearest good neighbours.
    """
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
