"""Discovery of libraries that are installed, missing, broken, or newer than the driver."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from batchyard.bench import discovery
from batchyard.bench.discovery import (
    UnusableLibraryError,
    cupy_cuda,
    find_device,
    require_gpu,
    torch_cuda,
)
from batchyard.errors import OperationalError


def importer(**modules: Any) -> Any:
    def imported(name: str) -> Any:
        found = modules.get(name.replace(".", "_"))
        if found is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if isinstance(found, Exception):
            raise found
        return found

    return imported


def torch_like(**cuda: Any) -> Any:
    backends = SimpleNamespace(
        cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=True)),
        cudnn=SimpleNamespace(allow_tf32=True),
    )
    return SimpleNamespace(
        __version__="2.0+cu118",
        version=SimpleNamespace(cuda="11.8"),
        cuda=SimpleNamespace(**cuda),
        backends=backends,
    )


def raising(exc: Exception) -> Any:
    def function(*args: Any) -> Any:
        raise exc

    return function


def test_a_library_that_is_not_installed_is_named_with_the_remedy() -> None:
    found = find_device("cpu", ["numpy", "cv2"], 2, importer(numpy=np))
    assert list(found.kits) == ["numpy"] and found.kits["numpy"].threads == 2
    assert found.missing == {"OpenCV": "not installed (pip install opencv-python-headless)"}


def test_a_broken_library_is_no_reason_to_stop() -> None:
    broken = importer(
        numpy=np, cv2=ImportError("libGL.so.1: cannot open"), scipy=RuntimeError("ABI")
    )
    found = find_device("cpu", ["numpy", "cv2", "scipy"], 1, broken)
    assert "libGL.so.1" in found.missing["OpenCV"] and "ABI" in found.missing["SciPy"]
    needs = importer(cv2=ModuleNotFoundError("no", name="numpy"))
    assert find_device("cpu", ["cv2"], 1, needs).missing == {
        "OpenCV": "it needs numpy, which is not installed"
    }


def test_pytorch_without_cuda() -> None:
    torch = SimpleNamespace(__version__="2.0+cpu", version=SimpleNamespace(cuda=None))
    with pytest.raises(UnusableLibraryError, match="built without CUDA"):
        torch_cuda(torch, importer())


@pytest.mark.parametrize(
    "message",
    [
        "The NVIDIA driver on your system is too old (found version 11040).",
        "CUDA driver version is insufficient for CUDA runtime version",
    ],
)
def test_a_driver_that_is_too_old_for_pytorch(message: str) -> None:
    torch = torch_like(is_available=lambda: False, init=raising(RuntimeError(message)))
    with pytest.raises(
        UnusableLibraryError, match="driver is too old for it: update the driver"
    ) as caught:
        torch_cuda(torch, importer())
    assert message in str(caught.value)


def test_what_pytorch_only_warns_about_is_heard() -> None:
    def is_available() -> bool:
        warnings.warn(
            "CUDA initialization: The NVIDIA driver on your system is too old", stacklevel=1
        )
        return False

    with pytest.raises(UnusableLibraryError, match="too old"):
        torch_cuda(torch_like(is_available=is_available, init=lambda: None), importer())


def test_a_driver_that_is_too_old_for_cupy() -> None:
    exc = RuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient")
    cupy = SimpleNamespace(
        cuda=SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=raising(exc)))
    )
    with pytest.raises(UnusableLibraryError, match="driver is too old"):
        cupy_cuda(cupy, importer())


def test_cuda_computes_in_true_float32() -> None:
    torch = torch_like(
        is_available=lambda: True, init=lambda: None, get_device_name=lambda device: "Some GPU"
    )
    kit = torch_cuda(torch, importer())
    assert kit.kind == "gpu" and kit.has_own_memory and kit.device_name == "Some GPU"
    assert (
        torch.backends.cuda.matmul.allow_tf32 is False and torch.backends.cudnn.allow_tf32 is False
    )


def test_cuda_of_an_old_pytorch_can_be_asked_for_its_memory() -> None:
    def mem_get_info(device: str) -> tuple[int, int]:
        # Before PyTorch 2.5, a device without a number was refused.
        if ":" not in device:
            raise ValueError(f"Expected a torch.device with a specified index, but got:{device}")
        return 5, 10

    torch = torch_like(is_available=lambda: True, init=lambda: None, mem_get_info=mem_get_info)
    assert torch_cuda(torch, importer()).free_bytes() == 5


def opencl_like(kind: int) -> Any:
    device = SimpleNamespace(type=kind, name=" Some Device ", platform=None)
    platform = SimpleNamespace(get_devices=lambda: [device])
    return SimpleNamespace(
        get_platforms=lambda: [platform], device_type=SimpleNamespace(CPU=2, GPU=4)
    )


def test_an_opencl_device_of_the_wrong_kind_is_named() -> None:
    found = find_device("gpu", ["opencl"], 1, importer(pyopencl=opencl_like(2)))
    assert found.missing == {"OpenCL": "it finds no GPU, only Some Device"}
    nothing = SimpleNamespace(
        get_platforms=raising(RuntimeError("PLATFORM_NOT_FOUND_KHR")),
        device_type=opencl_like(0).device_type,
    )
    assert (
        "PLATFORM_NOT_FOUND_KHR"
        in find_device("gpu", ["opencl"], 1, importer(pyopencl=nothing)).missing["OpenCL"]
    )


def test_no_gpu_says_why_for_each_library() -> None:
    torch = SimpleNamespace(__version__="2.0+cpu", version=SimpleNamespace(cuda=None))
    found = find_device("gpu", ["numpy", "torch", "cupy"], 1, importer(torch=torch))
    with pytest.raises(OperationalError) as caught:
        require_gpu(found)
    assert "PyTorch: 2.0+cpu was built without CUDA" in caught.value.message
    assert "CuPy: not installed" in caught.value.message and "NumPy" not in caught.value.message
    assert "--device cpu" in caught.value.hint


def test_long_messages_are_shortened() -> None:
    assert discovery.one_line("a\n  b") == "a b"
    assert len(discovery.one_line("x" * 1000)) == 300
    assert discovery.one_line(ValueError()) == "ValueError"
