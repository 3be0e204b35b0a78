"""The geometry of a scan, which all steps share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

#: Width of the field of view and of the detector, in cm. Object coordinates are in half fields,
#: from -1 to 1.
FIELD_CM = 4.0
#: The detector rows are evenly spaced from -Z_RANGE to Z_RANGE, in half fields.
Z_RANGE = 0.7


class InputError(Exception):
    """An option or an input file is invalid; a retry would fail in the same way."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A parallel-beam scan over a half turn. The detector has `slices` rows of `size` pixels."""

    size: int
    slices: int
    angles: int

    def __post_init__(self) -> None:
        for name, minimum in (("size", 16), ("slices", 1), ("angles", 3)):
            if getattr(self, name) < minimum:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least {minimum}")

    @property
    def pixel_cm(self) -> float:
        return FIELD_CM / self.size

    @property
    def middle_px(self) -> float:
        """Detector coordinate of the middle of a row; pixel centres are at 0, 1, 2 and so on."""
        return (self.size - 1) / 2

    @property
    def angles_rad(self) -> np.ndarray:
        return np.arange(self.angles) * (math.pi / self.angles)

    @property
    def heights(self) -> np.ndarray:
        """Height of each slice in half fields."""
        return ((np.arange(self.slices) + 0.5) / self.slices * 2 - 1) * Z_RANGE


def part_range(total: int, part: int, parts: int) -> range:
    """Return the items of part number `part` (from 1) of `parts`.

    The parts are about equal and in order, and each item is in exactly one part.
    """
    return range(total * (part - 1) // parts, total * part // parts)


def plane_px(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return x (one row) and y (one column) of the pixels of a slice, in pixels from the axis.

    x grows to the right, y upwards.
    """
    along = np.arange(size) - (size - 1) / 2
    return along[None, :], -along[:, None]
