"""The array library used by the back-projection: NumPy, or CuPy or PyTorch on a GPU.

The same code runs on all three libraries, because it uses only operators, indexing and the five
functions of `Arrays`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from .scan import InputError


@dataclass(frozen=True, slots=True)
class Arrays:
    """An array library: its name and the functions that differ between libraries."""

    name: str
    from_numpy: Callable[[np.ndarray], Any]
    to_numpy: Callable[[Any], np.ndarray]
    floor: Callable[[Any], Any]
    clip: Callable[[Any, float, float], Any]
    to_index: Callable[[Any], Any]


def choose(environ: Mapping[str, str] = os.environ) -> Arrays:
    """Return the array library for the device that BATCHYARD_DEVICE names (`cpu` or `gpu`).

    Raises InputError if no library can use the GPU. Falling back to the CPU would be a slow job on
    an expensive machine, and nobody would notice.
    """
    device = environ.get("BATCHYARD_DEVICE", "cpu")
    if device == "cpu":
        return on_numpy()
    if device != "gpu":
        raise InputError(f"BATCHYARD_DEVICE is {device!r}; it must be cpu or gpu")
    cupy = _import("cupy")
    if cupy and cupy.cuda.is_available():
        return on_cupy(cupy)
    torch = _import("torch")
    if torch and torch.cuda.is_available():
        return on_torch(torch, "cuda")
    raise InputError(
        "BATCHYARD_DEVICE is gpu, but neither CuPy nor PyTorch finds a GPU here; "
        "install one of them (pip install cupy-cuda12x) or run with --no-gpu"
    )


def on_numpy() -> Arrays:
    return Arrays("numpy", np.asarray, np.asarray, np.floor, np.clip, lambda a: a.astype(np.int64))


def on_cupy(cupy: ModuleType) -> Arrays:
    return Arrays(
        "cupy", cupy.asarray, cupy.asnumpy, cupy.floor, cupy.clip, lambda a: a.astype(cupy.int64)
    )


def on_torch(torch: ModuleType, device: str) -> Arrays:
    return Arrays(
        "torch",
        lambda a: torch.from_numpy(np.ascontiguousarray(a)).to(device),
        lambda a: a.cpu().numpy(),
        torch.floor,
        torch.clip,
        lambda a: a.long(),
    )


def _import(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
