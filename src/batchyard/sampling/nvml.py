"""Use and memory of NVIDIA's GPUs, by the driver's library NVML, which is loaded with ctypes.

The library is loaded when the first child with a GPU is measured. Without it, and after an error,
the GPUs are not measured; nothing else depends on them.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from typing import Any

from batchyard.sampling.gpu_devices import ALL, is_number
from batchyard.sampling.samples import GpuReading

#: Path of the library, for a driver that is not in the loader's path.
LIBRARY_VARIABLE = "BATCHYARD_NVML"
_LIBRARY = "libnvidia-ml.so.1"
_SUCCESS = 0
_UUID_BYTES = 96
_BYTES_PER_MIB = 2**20


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


def combine(readings: Sequence[GpuReading]) -> GpuReading | None:
    """Return the GPUs of one child together; None without any."""
    percents = [reading.percent for reading in readings if reading.percent is not None]
    fullest = max(readings, key=lambda reading: reading.memory_mib or 0, default=None)
    if fullest is None:
        return None
    return fullest._replace(percent=sum(percents) / len(percents) if percents else None)


class Nvml:
    """The driver's library. All methods return nothing where the driver does."""

    def __init__(self, path: str) -> None:
        """Raises OSError or AttributeError if there is no such library, or no driver."""
        # No `PyDLL`: other threads go on while the driver answers.
        self._library = ctypes.CDLL(path)
        self._get_utilization = self._library.nvmlDeviceGetUtilizationRates
        self._get_memory = self._library.nvmlDeviceGetMemoryInfo
        code = self._library.nvmlInit_v2()
        if code != _SUCCESS:
            raise OSError(f"nvmlInit_v2 returned {code}")

    def find(self, device: str) -> list[ctypes.c_void_p]:
        """Return the handles of an entry of CUDA_VISIBLE_DEVICES; none if there is no such GPU."""
        if device == ALL:
            return [handle for number in range(self._count()) for handle in self._by_index(number)]
        if is_number(device):
            return self._by_index(int(device))
        handle = ctypes.c_void_p()
        code = self._library.nvmlDeviceGetHandleByUUID(device.encode(), ctypes.byref(handle))
        return [handle] if code == _SUCCESS else self._by_beginning(device)

    def _count(self) -> int:
        count = ctypes.c_uint()
        code = self._library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        return count.value if code == _SUCCESS else 0

    def _by_index(self, number: int) -> list[ctypes.c_void_p]:
        handle = ctypes.c_void_p()
        code = self._library.nvmlDeviceGetHandleByIndex_v2(
            ctypes.c_uint(number), ctypes.byref(handle)
        )
        return [handle] if code == _SUCCESS else []

    def _by_beginning(self, device: str) -> list[ctypes.c_void_p]:
        """Return the GPU whose UUID begins with the entry: CUDA accepts that, NVML does not."""
        handles = [handle for number in range(self._count()) for handle in self._by_index(number)]
        matching = [handle for handle in handles if self._read_uuid(handle).startswith(device)]
        return matching if len(matching) == 1 else []

    def _read_uuid(self, handle: ctypes.c_void_p) -> str:
        text = ctypes.create_string_buffer(_UUID_BYTES)
        code = self._library.nvmlDeviceGetUUID(handle, text, ctypes.c_uint(_UUID_BYTES))
        return text.value.decode(errors="replace") if code == _SUCCESS else ""

    def read(self, handle: ctypes.c_void_p) -> GpuReading:
        """Return the GPU at this moment. A part of a GPU (MIG) has no utilization of its own."""
        utilization, memory = _Utilization(), _Memory()
        percent: float | None = None
        if self._get_utilization(handle, ctypes.byref(utilization)) == _SUCCESS:
            percent = float(utilization.gpu)
        if self._get_memory(handle, ctypes.byref(memory)) != _SUCCESS:
            return GpuReading(percent)
        return GpuReading(percent, memory.used // _BYTES_PER_MIB, memory.total // _BYTES_PER_MIB)


class GpuReader:
    """Measures the GPUs of children, if the driver's library is there."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._path = environ.get(LIBRARY_VARIABLE) or _LIBRARY
        self._nvml: Nvml | None = None
        self._is_missing = False
        #: The handles of entries that were looked up.
        self._handles: dict[str, list[Any]] = {}

    def read(self, devices: Sequence[str]) -> GpuReading | None:
        """Return the GPUs of one child together; None if they are not measured."""
        if not devices or self._is_missing:
            return None
        try:
            return self._read(devices)
        except (OSError, AttributeError):  # no library, or one without a function
            self._is_missing = True
            return None

    def _read(self, devices: Sequence[str]) -> GpuReading | None:
        if self._nvml is None:
            self._nvml = Nvml(self._path)
        nvml = self._nvml
        for device in devices:
            if device not in self._handles:
                self._handles[device] = nvml.find(device)
        readings = [nvml.read(handle) for device in devices for handle in self._handles[device]]
        measured = [
            reading
            for reading in readings
            if reading.percent is not None or reading.memory_mib is not None
        ]
        return combine(measured)
