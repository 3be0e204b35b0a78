"""Which libraries and devices this machine can use, and why not the others. Imports the libraries that it finds."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from batchyard.bench.kits import CupyKit, Kit, OpenClKit, TorchKit
from batchyard.bench.workload import CPU, GPU
from batchyard.errors import OperationalError

#: imports a module by its name; a parameter, so that what is not installed can be tried
Importer: TypeAlias = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Library:
    title: str
    module: str
    #: what to install
    package: str


#: key of a kit -> the library
LIBRARIES = {
    "numpy": Library("NumPy", "numpy", "numpy"),
    "scipy": Library("SciPy", "scipy", "scipy"),
    "cv2": Library("OpenCV", "cv2", "opencv-python-headless"),
    "torch": Library("PyTorch", "torch", "torch"),
    "numba": Library("Numba", "numba", "numba"),
    "pillow": Library("Pillow", "PIL", "pillow"),
    "cupy": Library("CuPy", "cupy", "cupy-cuda12x"),
    "opencl": Library("OpenCL", "pyopencl", "pyopencl"),
}


@dataclass(slots=True)
class Found:
    """The kits of one kind of device, and for each library that gave none the reason."""

    kind: str
    kits: dict[str, Kit] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def device_name(self) -> str:
        """Of a GPU, what CUDA calls it, else OpenCL."""
        return next((kit.device_name for kit in self.kits.values() if kit.device_name), "")


def cpus() -> int:
    return len(os.sched_getaffinity(0))


def find(
    kind: str, wanted: Iterable[str], threads: int, importer: Importer = importlib.import_module
) -> Found:
    """Of the ``wanted`` libraries, those that serve this kind of device."""
    found = Found(kind)
    for key in wanted:
        library = LIBRARIES[key]
        if kind == GPU and key not in _GPU_KITS:
            continue
        if kind == CPU and key not in _CPU_KITS:
            continue
        try:
            module = _imported(library, importer)
            kit = (
                _GPU_KITS[key](module, importer)
                if kind == GPU
                else _CPU_KITS[key](library, module, importer, threads)
            )
        except Unusable as exc:
            found.missing[library.title] = str(exc)
        else:
            found.kits[key] = kit
    return found


def require_gpu(found: Found) -> None:
    if found.kits:
        return
    reasons = "; ".join(f"{name}: {reason}" for name, reason in found.missing.items())
    raise OperationalError(
        f"no GPU can be used here: {reasons or 'no workload that was asked for has code for one'}",
        hint="nvidia-smi shows whether there is one; measure the CPU with --device cpu",
    )


class Unusable(Exception):
    """A library that cannot be used, and why."""


def _imported(library: Library, importer: Importer) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importer(library.module)
    except ModuleNotFoundError as exc:
        if exc.name == library.module:
            raise Unusable(f"not installed (pip install {library.package})") from None
        raise Unusable(f"it needs {exc.name}, which is not installed") from None
    except Exception as exc:
        # Whatever a broken installation raises: a missing .so, another NumPy's ABI.
        raise Unusable(f"it cannot be imported: {one_line(exc)}") from None


# -- CPU --------------------------------------------------------------------------------------------------------


def _plain(library: Library, module: Any, importer: Importer, threads: int) -> Kit:
    key = next(key for key, one in LIBRARIES.items() if one is library)
    return Kit(key, library.title, module, str(module.__version__), threads)


def _opencv(library: Library, module: Any, importer: Importer, threads: int) -> Kit:
    module.setNumThreads(threads)
    return _plain(library, module, importer, threads)


def _numba(library: Library, module: Any, importer: Importer, threads: int) -> Kit:
    module.set_num_threads(min(threads, module.config.NUMBA_NUM_THREADS))
    return _plain(library, module, importer, threads)


def _torch_cpu(library: Library, module: Any, importer: Importer, threads: int) -> Kit:
    module.set_num_threads(threads)
    return TorchKit(module, "cpu", threads)


def _opencl_cpu(library: Library, module: Any, importer: Importer, threads: int) -> Kit:
    return _opencl(module, importer, module.device_type.CPU, "CPU")


_CPU_KITS: Mapping[str, Callable[[Library, Any, Importer, int], Kit]] = {
    "numpy": _plain,
    "scipy": _plain,
    "cv2": _opencv,
    "torch": _torch_cpu,
    "numba": _numba,
    "pillow": _plain,
    "opencl": _opencl_cpu,
}


# -- GPU --------------------------------------------------------------------------------------------------------


def torch_cuda(torch: Any, importer: Importer) -> Kit:
    if getattr(torch.version, "cuda", None) is None and getattr(torch.version, "hip", None) is None:
        raise Unusable(f"{torch.__version__} was built without CUDA")
    said = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if torch.cuda.is_available():
                torch.cuda.init()
                _honest_cuda(torch)
                return TorchKit(torch, "cuda")
            # Only a call that needs the device says why there is none.
            torch.cuda.init()
        except Exception as exc:
            said = one_line(exc)
    said = said or "; ".join(one_line(one.message) for one in caught)
    raise Unusable(cuda_trouble(said or "it finds no CUDA device"))


def _honest_cuda(torch: Any) -> None:
    """Float32 is float32: TF32 is faster and rounds to ten bits. And convolutions are chosen by trying, as on CPUs."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True


def cupy_cuda(cupy: Any, importer: Importer) -> Kit:
    try:
        if cupy.cuda.runtime.getDeviceCount() < 1:
            raise Unusable("it finds no CUDA device")
        return CupyKit(cupy, importer)
    except Unusable:
        raise
    except Exception as exc:
        raise Unusable(cuda_trouble(one_line(exc))) from None


def cuda_trouble(said: str) -> str:
    """CUDA's words, with the remedy where the driver is behind the library."""
    plain = said.lower().replace(" ", "")
    if "tooold" in plain or "insufficientdriver" in plain or "driverversionisinsufficient" in plain:
        return f"the NVIDIA driver is too old for it: update the driver, or install a build for an older CUDA ({said})"
    return said


def _opencl_gpu(module: Any, importer: Importer) -> Kit:
    return _opencl(module, importer, module.device_type.GPU, "GPU")


def _opencl(module: Any, importer: Importer, wanted: int, name: str) -> Kit:
    try:
        platforms = module.get_platforms()
    except Exception as exc:
        raise Unusable(f"no platform: {one_line(exc)}") from None
    devices = [device for platform in platforms for device in platform.get_devices()]
    for device in devices:
        if device.type & wanted:
            return OpenClKit(module, importer("pyopencl.array"), device)
    others = ", ".join(str(device.name).strip() for device in devices)
    raise Unusable(f"it finds no {name}" + (f", only {others}" if others else ""))


_GPU_KITS: Mapping[str, Callable[[Any, Importer], Kit]] = {
    "torch": torch_cuda,
    "cupy": cupy_cuda,
    "opencl": _opencl_gpu,
}


def one_line(value: object, at_most: int = 300) -> str:
    text = " ".join(str(value).split()) or type(value).__name__
    return text if len(text) <= at_most else text[: at_most - 3] + "..."
