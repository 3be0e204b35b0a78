"""Find the libraries and devices that this machine can use. Imports the libraries."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from batchyard.bench.kits import CupyKit, Kit, OpenClKit, TorchKit
from batchyard.bench.workload import GPU
from batchyard.errors import OperationalError

#: imports a module by its name; a parameter, so that tests can pretend other installations
Importer: TypeAlias = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Library:
    """A library that candidates can use."""

    title: str
    module: str
    #: name of the package to install
    package: str


#: key of a kit -> its library
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
class Device:
    """The usable kits of one kind of device, and why other libraries cannot be used."""

    kind: str
    kits: dict[str, Kit] = field(default_factory=dict)
    #: title of a library -> why it cannot be used
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the GPU according to CUDA or OpenCL; empty for a CPU."""
        return next((kit.device_name for kit in self.kits.values() if kit.device_name), "")


def cpu_count() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def find_device(
    kind: str,
    libraries: Iterable[str],
    threads: int,
    importer: Importer = importlib.import_module,
) -> Device:
    """Return the device with the kits of those of the libraries that can use it."""
    device = Device(kind)
    for key in libraries:
        if key not in (_GPU_KITS if kind == GPU else _CPU_KITS):
            continue
        library = LIBRARIES[key]
        try:
            module = _import_library(library, importer)
            if kind == GPU:
                device.kits[key] = _GPU_KITS[key](module, importer)
                # Candidates may decode or encode on the CPU, with all its threads.
                device.kits[key].threads = threads
            else:
                device.kits[key] = _CPU_KITS[key](library, module, importer, threads)
        except UnusableLibraryError as exc:
            device.missing[library.title] = str(exc)
    return device


def require_gpu(device: Device) -> None:
    """Raise OperationalError if no library can use a GPU."""
    if device.kits:
        return
    reasons = "; ".join(f"{name}: {reason}" for name, reason in device.missing.items())
    raise OperationalError(
        f"no GPU can be used here: {reasons or 'no selected workload has code for one'}",
        hint="nvidia-smi shows whether there is one; measure the CPU with --device cpu",
    )


class UnusableLibraryError(Exception):
    """A library cannot be used; the message says why."""


def _import_library(library: Library, importer: Importer) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importer(library.module)
    except ModuleNotFoundError as exc:
        if exc.name == library.module:
            raise UnusableLibraryError(f"not installed (pip install {library.package})") from None
        raise UnusableLibraryError(f"it needs {exc.name}, which is not installed") from None
    except Exception as exc:
        # A broken installation may raise anything: a missing .so, an incompatible NumPy.
        raise UnusableLibraryError(f"it cannot be imported: {one_line(exc)}") from None


# -- CPU --


def _plain(library: Library, module: Any, importer: Importer, threads: int) -> Kit:
    key = next(key for key, entry in LIBRARIES.items() if entry is library)
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


# -- GPU --


def torch_cuda(torch: Any, importer: Importer) -> Kit:
    if getattr(torch.version, "cuda", None) is None and getattr(torch.version, "hip", None) is None:
        raise UnusableLibraryError(f"{torch.__version__} was built without CUDA")
    problem = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if torch.cuda.is_available():
                torch.cuda.init()
                _use_full_precision(torch)
                # With its number: before PyTorch 2.5, mem_get_info("cuda") raises an exception.
                return TorchKit(torch, "cuda:0")
            # is_available() gives no reason, but init() raises one.
            torch.cuda.init()
        except Exception as exc:
            problem = one_line(exc)
    problem = problem or "; ".join(one_line(warning.message) for warning in caught)
    raise UnusableLibraryError(explain_cuda_error(problem or "it finds no CUDA device"))


def _use_full_precision(torch: Any) -> None:
    """Switch off TF32, which rounds to ten bits, and let cuDNN try out its convolutions."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True


def cupy_cuda(cupy: Any, importer: Importer) -> Kit:
    try:
        if cupy.cuda.runtime.getDeviceCount() < 1:
            raise UnusableLibraryError("it finds no CUDA device")
        return CupyKit(cupy, importer)
    except UnusableLibraryError:
        raise
    except Exception as exc:
        raise UnusableLibraryError(explain_cuda_error(one_line(exc))) from None


def explain_cuda_error(problem: str) -> str:
    """Return CUDA's message, with a remedy if the driver is too old for the library."""
    letters = problem.lower().replace(" ", "")
    signs = ("tooold", "insufficientdriver", "driverversionisinsufficient")
    if any(sign in letters for sign in signs):
        return (
            "the NVIDIA driver is too old for it: update the driver,"
            f" or install a build for an older CUDA ({problem})"
        )
    return problem


def _opencl_gpu(module: Any, importer: Importer) -> Kit:
    return _opencl(module, importer, module.device_type.GPU, "GPU")


def _opencl(module: Any, importer: Importer, device_type: int, name: str) -> Kit:
    try:
        platforms = module.get_platforms()
    except Exception as exc:
        raise UnusableLibraryError(f"no platform: {one_line(exc)}") from None
    devices = [device for platform in platforms for device in platform.get_devices()]
    for device in devices:
        if device.type & device_type:
            return OpenClKit(module, importer("pyopencl.array"), device)
    names = ", ".join(str(device.name).strip() for device in devices)
    raise UnusableLibraryError(f"it finds no {name}" + (f", only {names}" if names else ""))


_GPU_KITS: Mapping[str, Callable[[Any, Importer], Kit]] = {
    "torch": torch_cuda,
    "cupy": cupy_cuda,
    "opencl": _opencl_gpu,
}


def one_line(value: object, max_length: int = 300) -> str:
    """Return the text of ``value`` on one line, shortened; its type's name if it has no text."""
    text = " ".join(str(value).split()) or type(value).__name__
    return text if len(text) <= max_length else text[: max_length - 3] + "..."
