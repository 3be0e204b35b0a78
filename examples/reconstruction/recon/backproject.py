"""Back-projection of filtered sinograms; the same lines on a CPU and on a GPU."""

from __future__ import annotations

import math

import numpy as np

from .arrays import Arrays
from .scan import Scan, plane_px


def backproject(xp: Arrays, filtered: np.ndarray, scan: Scan, centre_px: float) -> np.ndarray:
    """Slices (n, size, size) of attenuation in 1/cm from filtered sinograms (n, angles, columns); float32.

    Several slices at a time, since where a pixel lies on the detector is the same for all of them.
    """
    x_px, y_px = np.broadcast_arrays(*plane_px(scan.size))
    seen = (
        np.hypot(x_px, y_px) <= scan.size / 2
    )  # the corners are not on the detector at every angle
    x, y = (xp.from_numpy(axis[seen].astype(np.float32)) for axis in (x_px, y_px))
    values = xp.from_numpy(filtered)
    # The last column gets slope 0, so a position just past it needs no case of its own.
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
