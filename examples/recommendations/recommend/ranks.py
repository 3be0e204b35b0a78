"""The processes of `mpirun`: each has a rank, and they add their gradients.

Without mpi4py there is one process. With a GPU, rank i computes on GPU i with CuPy, and the sums go
through the memory of the host.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from recommend.settings import InputError


@dataclass(frozen=True)
class Ranks:
    rank: int
    size: int
    #: NumPy, or CuPy on a GPU.
    xp: Any
    #: Name of what this rank computes on.
    device: str
    _communicator: Any = None

    def add(self, values: Any) -> Any:
        """Return the sum of an array over all ranks, the same on each of them."""
        if self._communicator is None or self.size == 1:
            return values
        mine = self.to_host(values)
        total = np.empty_like(mine)
        self._communicator.Allreduce(mine, total)
        return self.xp.asarray(total)

    def to_host(self, values: Any) -> np.ndarray:
        return np.ascontiguousarray(values.get() if hasattr(values, "get") else values)


def join() -> Ranks:
    """Return this process among those of `mpirun`. Raises InputError."""
    communicator = _find_communicator()
    rank = 0 if communicator is None else communicator.Get_rank()
    size = 1 if communicator is None else communicator.Get_size()
    xp, device = _find_device(rank)
    return Ranks(rank, size, xp, device, communicator)


def _find_communicator() -> Any:
    try:
        from mpi4py import MPI
    except ImportError as exc:
        # Without it each process would train, and write, alone.
        if int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1")) > 1:
            raise InputError(
                f"mpirun started several processes, and mpi4py is missing: {exc}"
            ) from exc
        return None
    return MPI.COMM_WORLD


def _find_device(rank: int) -> tuple[Any, str]:
    """Return CuPy and the GPU of a rank, or NumPy. Raises InputError for a missing GPU."""
    device = os.environ.get("BATCHYARD_DEVICE", "")
    if device == "cpu":
        return np, "CPU"
    try:
        import cupy

        number = rank % cupy.cuda.runtime.getDeviceCount()
        cupy.cuda.Device(number).use()
        name = cupy.cuda.runtime.getDeviceProperties(number)["name"].decode()
        return cupy, f"GPU {number} ({name})"
    # CuPy has errors of its own for a driver that is missing, and for a machine without GPUs.
    except Exception as exc:
        if device == "gpu":
            raise InputError(f"the step has a GPU, and CuPy cannot use it: {exc}") from exc
        return np, "CPU"
