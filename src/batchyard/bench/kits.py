"""Kits: one adapter for each library, to convert, copy and wait for its arrays.

A kit receives its library as a parameter. So tests without a GPU run the CUDA code with PyTorch on
a CPU, and CuPy's kit with any module that has CuPy's functions.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from batchyard.bench import memory
from batchyard.bench.workload import CPU, GPU, Array


class Kit:
    """NumPy, and every library that computes on NumPy arrays; base class of the other kits."""

    def __init__(self, key: str, title: str, lib: Any, version: str, threads: int = 1) -> None:
        #: name in Candidate.kit
        self.key = key
        #: name in tables
        self.title = title
        #: the library's module
        self.lib = lib
        self.version = version
        self.threads = threads
        #: details besides name and version, for the description of the machine
        self.about: dict[str, Any] = {}

    kind: str = CPU
    #: whether data must be copied to the device and back; the copies are measured
    has_own_memory: bool = False

    @property
    def device_name(self) -> str:
        """Name of the processor; empty if the library does not know it."""
        return ""

    def host(self, array: Array) -> Any:
        """Return a NumPy array as the library's array on the host."""
        return array

    def to_device(self, held: Any) -> Any:
        return held

    def to_host(self, result: Any) -> Array:
        array: Array = result
        return array

    def synchronise(self) -> None:
        """Wait until the device has done all its work."""

    def free_bytes(self) -> int | None:
        return memory.available_bytes()

    def reset_peak(self) -> None:
        memory.reset_peak()

    def peak_bytes(self) -> int | None:
        return memory.peak_bytes()

    def tidy(self) -> None:
        """Release memory that the library keeps for later."""

    def measuring(self) -> AbstractContextManager[Any]:
        """Return a context manager for all code that computes."""
        return nullcontext()


class TorchKit(Kit):
    """PyTorch, on a CPU or on CUDA."""

    def __init__(self, torch: Any, device: str, threads: int = 1) -> None:
        super().__init__("torch", "PyTorch", torch, str(torch.__version__), threads)
        self.device = device
        self._is_cuda = device.startswith("cuda")
        self.kind = GPU if self._is_cuda else CPU
        self.has_own_memory = self._is_cuda

    @property
    def device_name(self) -> str:
        return str(self.lib.cuda.get_device_name(self.device)) if self._is_cuda else ""

    def host(self, array: Array) -> Any:
        return self.lib.from_numpy(array)

    def to_device(self, held: Any) -> Any:
        return held.to(self.device)

    def to_host(self, result: Any) -> Array:
        array: Array = result.cpu().numpy() if self.lib.is_tensor(result) else result
        return array

    def synchronise(self) -> None:
        if self._is_cuda:
            self.lib.cuda.synchronize(self.device)

    def free_bytes(self) -> int | None:
        if not self._is_cuda:
            return super().free_bytes()
        return int(self.lib.cuda.mem_get_info(self.device)[0])

    def reset_peak(self) -> None:
        if self._is_cuda:
            self.lib.cuda.reset_peak_memory_stats(self.device)
        else:
            super().reset_peak()

    def peak_bytes(self) -> int | None:
        if not self._is_cuda:
            return super().peak_bytes()
        return int(self.lib.cuda.max_memory_allocated(self.device))

    def tidy(self) -> None:
        if self._is_cuda:
            self.lib.cuda.empty_cache()

    def measuring(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.lib.inference_mode()
        return context


class CupyKit(Kit):
    """CuPy on CUDA."""

    kind = GPU
    has_own_memory = True

    def __init__(self, cupy: Any, importer: Callable[[str], Any] = importlib.import_module) -> None:
        super().__init__("cupy", "CuPy", cupy, str(cupy.__version__))
        #: imports modules beside CuPy's own, like cupyx.scipy.ndimage
        self.load = importer

    @property
    def device_name(self) -> str:
        name = self.lib.cuda.runtime.getDeviceProperties(self.lib.cuda.Device().id)["name"]
        return name.decode() if isinstance(name, bytes) else str(name)

    def to_device(self, held: Any) -> Any:
        return self.lib.asarray(held)

    def to_host(self, result: Any) -> Array:
        array: Array = self.lib.asnumpy(result)
        return array

    def synchronise(self) -> None:
        self.lib.cuda.get_current_stream().synchronize()

    def free_bytes(self) -> int | None:
        return int(self.lib.cuda.runtime.memGetInfo()[0])

    def reset_peak(self) -> None:
        self.tidy()

    def peak_bytes(self) -> int | None:
        # The pool grows until it is freed, so its size is the peak.
        return int(self.lib.get_default_memory_pool().total_bytes())

    def tidy(self) -> None:
        self.lib.get_default_memory_pool().free_all_blocks()


class OpenClKit(Kit):
    """pyopencl on one device; candidates compile their kernels with ``build``."""

    has_own_memory = True

    def __init__(self, pyopencl: Any, arrays: Any, device: Any) -> None:
        super().__init__("opencl", "OpenCL", pyopencl, str(pyopencl.VERSION_TEXT))
        self.arrays = arrays
        self._device = device
        self.kind = GPU if device.type & pyopencl.device_type.GPU else CPU
        # On a CPU, OpenCL buffers are in the host's memory: no copies are needed.
        self.has_own_memory = self.kind == GPU
        self.context = pyopencl.Context([device])
        self.queue = pyopencl.CommandQueue(self.context)
        # Build options follow after two spaces or a comma.
        version = str(device.platform.version).partition("  ")[0].partition(",")[0]
        self.about = {"platform": device.platform.name, "platform version": version}

    @property
    def device_name(self) -> str:
        return str(self._device.name).strip()

    def to_device(self, held: Any) -> Any:
        return self.arrays.to_device(self.queue, held)

    def to_host(self, result: Any) -> Array:
        array: Array = result if hasattr(result, "__array_interface__") else result.get()
        return array

    def synchronise(self) -> None:
        self.queue.finish()

    def free_bytes(self) -> int | None:
        limit = int(self._device.global_mem_size)
        return limit if self.kind == GPU else min(limit, memory.available_bytes() or limit)

    def reset_peak(self) -> None:
        if self.kind == CPU:
            super().reset_peak()

    def peak_bytes(self) -> int | None:
        # OpenCL cannot report the memory in use on a device.
        return super().peak_bytes() if self.kind == CPU else None

    def build(self, source: str, kernel: str) -> Any:
        """Compile OpenCL source and return one of its kernels."""
        with warnings.catch_warnings():
            # Compilers print remarks about correct code too.
            warnings.simplefilter("ignore")
            program = self.lib.Program(self.context, source).build()
            return getattr(program, kernel)

    def empty(self, shape: tuple[int, ...]) -> Any:
        return self.arrays.empty(self.queue, shape, "float32")
