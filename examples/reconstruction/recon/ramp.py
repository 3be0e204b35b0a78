"""The ramp filter of filtered back-projection."""

from __future__ import annotations

import math

import numpy as np


def response(size: int) -> np.ndarray:
    """Return the gain of the filter at each frequency, for rows of `size` pixels.

    The rows are padded, so that the filter does not wrap around. The gain comes from the
    band-limited ramp in space (Kak and Slaney, chapter 3, eq. 61). The simpler |frequency| is 0 at
    frequency 0 and would darken the whole slice. A window reduces the noise.
    """
    padded = 2 ** math.ceil(math.log2(2 * size))
    distance = np.minimum(np.arange(padded), padded - np.arange(padded))
    odd = distance % 2 == 1
    kernel = np.zeros(padded)
    kernel[odd] = -1 / (math.pi * distance[odd]) ** 2
    kernel[0] = 0.25
    return np.fft.rfft(kernel).real * window(np.fft.rfftfreq(padded))


def window(cycles_per_px: np.ndarray) -> np.ndarray:
    """Return the gain of the window: 1 up to 0.25 cycles per pixel, then a cosine down to 0.

    The gain reaches 0 at the Nyquist frequency, 0.5 cycles per pixel.
    """
    beyond = np.clip((cycles_per_px - 0.25) / 0.25, 0, 1)
    return 0.5 + 0.5 * np.cos(math.pi * beyond)


def apply(sinogram: np.ndarray) -> np.ndarray:
    """Filter each row of a sinogram (..., columns); return float32."""
    size = sinogram.shape[-1]
    gain = response(size)
    padded = 2 * (len(gain) - 1)
    spectrum = np.fft.rfft(sinogram.astype(np.float64), padded, axis=-1) * gain
    return np.fft.irfft(spectrum, padded, axis=-1)[..., :size].astype(np.float32)
