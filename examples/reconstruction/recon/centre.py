"""Where the rotation axis meets the detector."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Centre:
    #: Detector coordinate of the axis, in pixel centres from 0.
    centre_px: float
    #: Standard error of that, from how much the detector's rows disagree.
    error_px: float
    rows: int


def find(integrals: np.ndarray, angles_rad: np.ndarray) -> Centre:
    """Find the axis from line integrals (angles, rows, columns) of an object wholly on the detector.

    The centre of mass of a turning object draws a sine around the axis, so the constant term of a
    least-squares fit is the axis. Each row is fitted by itself; their median shrugs off a damaged row.
    """
    integrals = integrals.astype(np.float64)
    mass = integrals.sum(axis=2)
    moment_px = (integrals * np.arange(integrals.shape[2])).sum(axis=2) / mass
    sine = np.stack([np.ones_like(angles_rad), np.cos(angles_rad), np.sin(angles_rad)], axis=1)
    fitted, *_ = np.linalg.lstsq(sine, moment_px, rcond=None)
    per_row = fitted[0]
    middle = float(np.median(per_row))
    spread = 1.4826 * float(
        np.median(np.abs(per_row - middle))
    )  # a standard deviation that ignores outliers
    return Centre(middle, spread / len(per_row) ** 0.5, len(per_row))
