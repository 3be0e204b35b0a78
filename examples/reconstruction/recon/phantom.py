"""The simulated object: a head made of ellipsoids (a Shepp-Logan phantom).

Its projections and slices are computed exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .scan import FIELD_CM, plane_px


@dataclass(frozen=True, slots=True)
class Ellipsoid:
    """An ellipsoid of the phantom. Where ellipsoids overlap, their attenuations are added.

    Lengths are in half fields of view. `turn_deg` is a rotation about the z axis.
    """

    attenuation_per_cm: float
    half_axes: tuple[float, float, float]
    centre: tuple[float, float, float]
    turn_deg: float = 0.0

    def shrink(self, heights: np.ndarray) -> np.ndarray:
        """Return the size of the cross section at each height, as a share of the largest one.

        The size is 0 at heights that the ellipsoid does not reach.
        """
        above_waist = (heights - self.centre[2]) / self.half_axes[2]
        return np.sqrt(np.clip(1 - above_waist**2, 0, None))


#: The first ellipsoid is the outline of the head, the second the inside of the skull.
HEAD: tuple[Ellipsoid, ...] = (
    Ellipsoid(0.80, (0.690, 0.920, 0.900), (0.00, 0.000, 0.00)),
    Ellipsoid(-0.55, (0.645, 0.870, 0.850), (0.00, -0.010, 0.00)),
    Ellipsoid(-0.20, (0.110, 0.310, 0.420), (0.22, 0.000, 0.00), -18),
    Ellipsoid(-0.20, (0.160, 0.410, 0.480), (-0.22, 0.000, 0.00), 18),
    Ellipsoid(0.12, (0.210, 0.250, 0.410), (0.00, 0.380, -0.10)),
    Ellipsoid(0.15, (0.060, 0.060, 0.300), (0.00, 0.060, 0.05)),
    Ellipsoid(0.15, (0.045, 0.045, 0.250), (0.00, -0.120, 0.05)),
    Ellipsoid(0.18, (0.060, 0.030, 0.300), (-0.10, -0.605, 0.00)),
    Ellipsoid(0.18, (0.026, 0.026, 0.300), (0.00, -0.605, 0.00)),
    Ellipsoid(0.18, (0.030, 0.060, 0.300), (0.08, -0.605, 0.00)),
    Ellipsoid(0.10, (0.130, 0.070, 0.200), (0.27, -0.340, -0.38), 35),
    Ellipsoid(0.10, (0.110, 0.060, 0.200), (-0.26, 0.360, 0.42), -40),
)


def project(angle_rad: float, edges: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """Return the mean line integral of each pixel at one angle; `edges` are in half fields."""
    total = np.zeros((len(heights), len(edges) - 1))
    for body in HEAD:
        shrink = body.shrink(heights)
        hit = shrink > 0
        total[hit] += body.attenuation_per_cm * _chords(body, angle_rad, edges, shrink[hit])
    return total * (FIELD_CM / 2)


def _chords(body: Ellipsoid, angle_rad: float, edges: np.ndarray, shrink: np.ndarray) -> np.ndarray:
    """Return the mean chord length of each pixel.

    The mean chord length is the area of the ellipse between the two edges of the pixel, divided by
    the width of the pixel.
    """
    a, b, _ = body.half_axes
    across = angle_rad - math.radians(body.turn_deg)
    half_width = math.hypot(a * math.cos(across), b * math.sin(across)) * shrink
    middle = body.centre[0] * math.cos(angle_rad) + body.centre[1] * math.sin(angle_rad)
    u = np.clip((edges - middle) / half_width[:, None], -1, 1)
    area = a * b * shrink[:, None] ** 2 * (u * np.sqrt(1 - u * u) + np.arcsin(u))
    return np.diff(area, axis=1) / np.diff(edges)


def draw_slice(size: int, height: float, finer: int = 3) -> np.ndarray:
    """Return the true attenuation of a slice, in 1/cm.

    Each pixel is the mean of `finer` x `finer` points.
    """
    x, y = (axis * (2 / (size * finer)) for axis in plane_px(size * finer))
    fine = np.zeros((size * finer, size * finer))
    for body in HEAD:
        reach = max(body.half_axes[:2])  # most bodies are small: skip pixels farther away
        columns = np.abs(x[0] - body.centre[0]) < reach
        rows = np.abs(y[:, 0] - body.centre[1]) < reach
        inside = _inside(body, x[:, columns], y[rows], height)
        fine[np.ix_(rows, columns)] += body.attenuation_per_cm * inside
    return fine.reshape(size, finer, size, finer).mean(axis=(1, 3))


def draw_mask(size: int, height: float, body: int) -> np.ndarray:
    """Return the mask of the pixels of a slice whose middle is inside HEAD[body]."""
    x, y = (axis * (2 / size) for axis in plane_px(size))
    return _inside(HEAD[body], x, y, height)


def _inside(body: Ellipsoid, x: np.ndarray, y: np.ndarray, height: float) -> np.ndarray:
    turn = math.radians(body.turn_deg)
    from_x, from_y = x - body.centre[0], y - body.centre[1]
    along_a = (from_x * math.cos(turn) + from_y * math.sin(turn)) / body.half_axes[0]
    along_b = (from_y * math.cos(turn) - from_x * math.sin(turn)) / body.half_axes[1]
    return along_a**2 + along_b**2 < float(body.shrink(np.asarray(height))) ** 2


def outline_radius() -> float:
    """Return the largest distance of the object from the axis, in half fields."""
    return max(HEAD[0].half_axes[:2])
