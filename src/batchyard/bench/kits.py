"""Libraries that compute, each with its way of holding, moving and waiting for arrays. Touches the device it is for.

A kit is given its library as a value: the code that serves CUDA serves PyTorch on a CPU too, and CuPy's serves
whatever has CuPy's functions. That is how both are tested where there is no GPU.
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
    """NumPy, and every library that computes on NumPy's arrays in place; the others differ from it."""

    def __init__(self, key: str, title: str, lib: Any, version: str, threads: int = 1) -> None:
        #: what candidates call it
        self.key = key
        #: what people call it
        self.title = title
        #: the module
        self.lib = lib
        self.version = version
        self.threads = threads
        #: beyond the library's name and version, for the record
        self.about: dict[str, Any] = {}

    kind: str = CPU
    #: copies are needed to and from it, and are measured
    has_own_memory: bool = False

    @property
    def device_name(self) -> str:
        """The processor's, where the library knows it."""
        return ""

    def host(self, array: Array) -> Any:
        """As the library holds arrays on the host."""
        return array

    def to_device(self, held: Any) -> Any:
        return held

    def to_host(self, result: Any) -> Array:
        array: Array = result
        return array

    def synchronise(self) -> None:
        """Returns when everything that was asked of the device is done."""

    def free_bytes(self) -> int | None:
        return memory.available_bytes()

    def reset_peak(self) -> None:
        memory.reset_peak()

    def peak_bytes(self) -> int | None:
        return memory.peak_bytes()

    def tidy(self) -> None:
        """Gives back memory that is only kept for later."""

    def measuring(self) -> AbstractContextManager[Any]:
        """Around everything that computes."""
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
    kind = GPU
    has_own_memory = True

    def __init__(self, cupy: Any, importer: Callable[[str], Any] = importlib.import_module) -> None:
        super().__init__("cupy", "CuPy", cupy, str(cupy.__version__))
        #: for what CuPy keeps in modules of their own, like cupyx.scipy.ndimage
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
        # The pool only grows until it is freed, so what it has taken is the most that was needed.
        return int(self.lib.get_default_memory_pool().total_bytes())

    def tidy(self) -> None:
        self.lib.get_default_memory_pool().free_all_blocks()


class OpenClKit(Kit):
    """pyopencl, on one device. ``lib`` is the module; candidates build their kernels with ``build``."""

    has_own_memory = True

    def __init__(self, pyopencl: Any, arrays: Any, device: Any) -> None:
        super().__init__("opencl", "OpenCL", pyopencl, str(pyopencl.VERSION_TEXT))
        self.arrays = arrays
        self._device = device
        self.kind = GPU if device.type & pyopencl.device_type.GPU else CPU
        # On a CPU its buffers are the host's memory, so what a user would pay for is the call alone.
        self.has_own_memory = self.kind == GPU
        self.context = pyopencl.Context([device])
        self.queue = pyopencl.CommandQueue(self.context)
        # What follows two spaces or a comma is how it was built.
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
        # OpenCL does not say what a device has in use.
        return super().peak_bytes() if self.kind == CPU else None

    def build(self, source: str, kernel: str) -> Any:
        with warnings.catch_warnings():
            # Compilers have remarks even about code that is right.
            warnings.simplefilter("ignore")
            program = self.lib.Program(self.context, source).build()
            return getattr(program, kernel)

    def empty(self, shape: tuple[int, ...]) -> Any:
        return self.arrays.empty(self.queue, shape, "float32")
