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
        #: pinned buffers for results, by shape, strides and type; reused by each copy
        self._buffers: dict[Any, Any] = {}

    @property
    def device_name(self) -> str:
        return str(self.lib.cuda.get_device_name(self.device)) if self._is_cuda else ""

    def host(self, array: Array) -> Any:
        """Return the array, for CUDA in pinned memory, which the device reads without the CPU."""
        tensor = self.lib.from_numpy(array)
        if not self._is_cuda:
            return tensor
        try:
            return tensor.pin_memory()
        except RuntimeError:
            return tensor  # no memory can be pinned: the copies are slower

    def to_device(self, held: Any) -> Any:
        return held.to(self.device, non_blocking=True)

    def to_host(self, result: Any) -> Array:
        """Return the result as an array, which the next copy may overwrite."""
        if not self.lib.is_tensor(result):
            plain: Array = result
            return plain
        array: Array = self._copy_down(result).numpy()
        return array

    def _copy_down(self, result: Any) -> Any:
        if not self._is_cuda:
            return result.cpu()
        key = (tuple(result.shape), tuple(result.stride()), result.dtype)
        try:
            if key not in self._buffers:
                self._buffers[key] = self.lib.empty_like(result, device="cpu", pin_memory=True)
        except RuntimeError:
            return result.cpu()
        buffer = self._buffers[key].copy_(result, non_blocking=True)
        self.synchronise()
        return buffer

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
            self._buffers.clear()
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
        self._empty_pinned = _find_pinned_allocator(importer)
        #: pinned buffers for results, by shape and type; reused by each copy
        self._buffers: dict[Any, Any] = {}

    @property
    def device_name(self) -> str:
        name = self.lib.cuda.runtime.getDeviceProperties(self.lib.cuda.Device().id)["name"]
        return name.decode() if isinstance(name, bytes) else str(name)

    def host(self, array: Array) -> Any:
        """Return the array in pinned memory, which the device reads without the CPU."""
        if self._empty_pinned is None or not array.flags.c_contiguous:
            return array
        pinned = self._empty_pinned(array.shape, array.dtype)
        pinned[...] = array
        return pinned

    def to_device(self, held: Any) -> Any:
        if self._empty_pinned is None or not held.flags.c_contiguous:
            return self.lib.asarray(held)
        array = self.lib.empty(held.shape, held.dtype)
        array.set(held)  # without the staging buffer of asarray()
        return array

    def to_host(self, result: Any) -> Array:
        """Return the result as an array, which the next copy may overwrite."""
        if self._empty_pinned is None or not result.flags.c_contiguous:
            array: Array = self.lib.asnumpy(result)
            return array
        key = (result.shape, result.dtype.str)
        if key not in self._buffers:
            self._buffers[key] = self._empty_pinned(result.shape, result.dtype)
        buffer: Array = self.lib.asnumpy(result, out=self._buffers[key])
        return buffer

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
        self._buffers.clear()
        self.lib.get_default_memory_pool().free_all_blocks()


def _find_pinned_allocator(importer: Callable[[str], Any]) -> Any:
    """Return CuPy's function for arrays in pinned memory; None if this version has none."""
    try:
        return getattr(importer("cupyx"), "empty_pinned", None)
    except ImportError:
        return None


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
