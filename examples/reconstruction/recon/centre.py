"""Find the position of the rotation axis on the detector."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Centre:
    """The position of the rotation axis on the detector."""

    #: Detector coordinate of the axis, in pixel centres from 0.
    centre_px: float
    #: Standard error of `centre_px`, from the differences between the detector rows.
    error_px: float
    rows: int


def find(integrals: np.ndarray, angles_rad: np.ndarray) -> Centre:
    """Find the axis from line integrals (angles, rows, columns).

    The whole object must be on the detector at every angle. The centre of mass of a turning object
    follows a sine around the axis, so the constant term of a least-squares fit is the axis. Each
    row is fitted separately; the median of the rows is not affected by a damaged row.
    """
    integrals = integrals.astype(np.float64)
    mass = integrals.sum(axis=2)
    moment_px = (integrals * np.arange(integrals.shape[2])).sum(axis=2) / mass
    sine = np.stack([np.ones_like(angles_rad), np.cos(angles_rad), np.sin(angles_rad)], axis=1)
    fitted, *_ = np.linalg.lstsq(sine, moment_px, rcond=None)
    per_row = fitted[0]
    middle = float(np.median(per_row))
    # The median absolute deviation, scaled to a standard deviation: outliers do not affect it.
    spread = 1.4826 * float(np.median(np.abs(per_row - middle)))
    return Centre(middle, spread / len(per_row) ** 0.5, len(per_row))
