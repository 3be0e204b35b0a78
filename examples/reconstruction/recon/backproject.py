"""Back-projection of filtered sinograms. The same code runs on a CPU and on a GPU."""

from __future__ import annotations

import math

import numpy as np

from .arrays import Arrays
from .scan import Scan, plane_px


def backproject(xp: Arrays, filtered: np.ndarray, scan: Scan, centre_px: float) -> np.ndarray:
    """Reconstruct slices (n, size, size) from filtered sinograms (n, angles, columns).

    The slices are float32 and hold attenuation in 1/cm. Computing several slices in one call is
    faster: the position of a pixel on the detector is the same for all slices.
    """
    x_px, y_px = np.broadcast_arrays(*plane_px(scan.size))
    # The corners of a slice are outside the detector at some angles, so they stay 0.
    seen = np.hypot(x_px, y_px) <= scan.size / 2
    x, y = (xp.from_numpy(axis[seen].astype(np.float32)) for axis in (x_px, y_px))
    values = xp.from_numpy(filtered)
    # The last column gets slope 0, so positions at the edge need no special case.
    slopes = xp.from_numpy(np.diff(filtered, axis=2, append=filtered[:, :, -1:]))
    sums = [x * 0 for _ in filtered]
    for turn, angle_rad in enumerate(scan.angles_rad.tolist()):
        position = xp.clip(
            x * math.cos(angle_rad) + y * math.sin(angle_rad) + centre_px, 0, scan.size - 1
        )
        whole = xp.floor(position)
        fraction, column = position - whole, xp.to_index(whole)
        for n, total in enumerate(sums):
            total += values[n, turn][column] + slopes[n, turn][column] * fraction
    slices = np.zeros((len(filtered), scan.size, scan.size), dtype=np.float32)
    for n, total in enumerate(sums):
        slices[n, seen] = xp.to_numpy(total) * np.float32(math.pi / scan.angles / scan.pixel_cm)
    return slices
