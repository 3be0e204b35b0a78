"""Simulate a detector with faults: uneven light, noise, bad pixels and a shifted rotation axis.

The other steps have to correct these faults.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .phantom import outline_radius, project
from .scan import InputError, Scan

FULL_WELL = 65535  # the largest 16-bit count, which a hot pixel always has
OFFSET_COUNTS = 200.0
READ_NOISE_COUNTS = 4.0
BAD_PIXEL_SHARE = 0.003
FIELD_FRAMES = 20  # number of dark frames and of flat frames; the correction uses their mean


@dataclass(frozen=True, slots=True)
class Raw:
    """The frames of a simulated scan (16-bit counts), and the true mask of bad pixels."""

    dark: np.ndarray  # (frames, rows, columns)
    flat: np.ndarray  # (frames, rows, columns)
    projections: np.ndarray  # (angles, rows, columns)
    bad: np.ndarray  # (rows, columns); only for comparison, the correction does not read it


def simulate(scan: Scan, shift_px: float, photons: float, seed: int) -> Raw:
    """Simulate a scan of the phantom.

    `shift_px` is the distance of the rotation axis to the right of the detector's middle, and
    `photons` the number per pixel and projection in the brightest part of the beam. Raises
    InputError if the object does not fit on the detector.
    """
    _refuse_truncation(scan, shift_px)
    rng = np.random.default_rng(seed)
    shape = (scan.slices, scan.size)
    light = photons * _beam(shape) * rng.normal(1, 0.04, shape).clip(0.8, 1.2)
    offset = OFFSET_COUNTS + rng.normal(0, 10, shape)
    dead, hot = _bad_pixels(rng, shape)

    def expose(transmission: np.ndarray | float, frame: int) -> np.ndarray:
        # One random generator per frame: its noise does not depend on the frames before it.
        noise = np.random.default_rng([seed, frame])
        counts = (
            noise.poisson(light * transmission) + offset + noise.normal(0, READ_NOISE_COUNTS, shape)
        )
        counts[dead] = 0
        counts[hot] = FULL_WELL
        return counts.clip(0, FULL_WELL).astype(np.uint16)

    edges = (np.arange(scan.size + 1) - 0.5 - scan.middle_px - shift_px) * (2 / scan.size)
    turns = enumerate(scan.angles_rad, start=2 * FIELD_FRAMES)
    return Raw(
        dark=np.stack([expose(0.0, frame) for frame in range(FIELD_FRAMES)]),
        flat=np.stack([expose(1.0, FIELD_FRAMES + frame) for frame in range(FIELD_FRAMES)]),
        projections=np.stack(
            [expose(np.exp(-project(turn, edges, scan.heights)), n) for n, turn in turns]
        ),
        bad=dead | hot,
    )


def _refuse_truncation(scan: Scan, shift_px: float) -> None:
    room_px = scan.size / 2 - abs(shift_px)
    needed_px = outline_radius() * scan.size / 2
    if needed_px > room_px:
        raise InputError(
            f"with a shift of {shift_px} px the object ({needed_px:.1f} px around its axis) leaves "
            f"the detector ({room_px:.1f} px on one side); take a larger size or a smaller shift"
        )


def _beam(shape: tuple[int, int]) -> np.ndarray:
    """Return the light of the beam: brightest left of the middle, with faint vertical stripes."""
    rows, columns = (np.linspace(-1, 1, n) for n in shape)
    spot = np.exp(-0.35 * (columns[None, :] + 0.2) ** 2 - 0.25 * rows[:, None] ** 2)
    return spot * (1 + 0.05 * np.sin(17 * columns))[None, :]


def _bad_pixels(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    draw = rng.random(shape)
    dead, hot = draw < BAD_PIXEL_SHARE / 2, draw > 1 - BAD_PIXEL_SHARE / 2
    dead[:, 1:] |= dead[:, :-1] & (rng.random(shape) < 0.3)[:, 1:]  # some dead pixels are pairs
    return dead, hot & ~dead
