"""The geometry of a scan: what every step must agree on. Knows nothing of files or of the object scanned."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

#: Width of the field of view, and so of the detector. The object lives in [-1, 1] half fields.
FIELD_CM = 4.0
#: The detector rows are spread evenly over this part of the object's height, in half fields.
Z_RANGE = 0.7


class InputError(Exception):
    """What was asked for, or found on disk, cannot be used; trying again will not help."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A half-turn parallel-beam scan; the detector has `slices` rows of `size` pixels."""

    size: int
    slices: int
    angles: int

    def __post_init__(self) -> None:
        for name, least in (("size", 16), ("slices", 1), ("angles", 3)):
            if getattr(self, name) < least:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least {least}")

    @property
    def pixel_cm(self) -> float:
        return FIELD_CM / self.size

    @property
    def middle_px(self) -> float:
        """Detector coordinate of the middle of a row, counted in pixel centres from 0."""
        return (self.size - 1) / 2

    @property
    def angles_rad(self) -> np.ndarray:
        return np.arange(self.angles) * (math.pi / self.angles)

    @property
    def heights(self) -> np.ndarray:
        """Height of each slice in half fields."""
        return ((np.arange(self.slices) + 0.5) / self.slices * 2 - 1) * Z_RANGE


def part_range(total: int, part: int, parts: int) -> range:
    """The items of part number `part` (from 1) of `parts`: even, in order, each item in exactly one part."""
    return range(total * (part - 1) // parts, total * part // parts)


def plane_px(size: int) -> tuple[np.ndarray, np.ndarray]:
    """x (one row) and y (one column) of a slice's pixels, from the axis; x grows to the right, y upwards."""
    along = np.arange(size) - (size - 1) / 2
    return along[None, :], -along[:, None]
