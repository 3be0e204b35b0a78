"""The driver's library NVML through ctypes, with a small library in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchyard.sampling import nvml
from batchyard.sampling.gpu_devices import list_devices, split_devices
from batchyard.sampling.nvml import GpuReader
from batchyard.sampling.samples import GpuReading
from nvml_library import FIRST_UUID, MIG_UUID, SECOND_UUID, build_library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def reader(library: Path) -> GpuReader:
    (library.parent / "lost").unlink(missing_ok=True)
    return GpuReader({nvml.LIBRARY_VARIABLE: str(library)})


FIRST = GpuReading(70.0, 6000, 16384)
SECOND = GpuReading(30.0, 9000, 16384)


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (("0",), FIRST),
        (("1",), SECOND),
        (("0", "1"), GpuReading(50.0, 9000, 16384)),
        (("all",), GpuReading(50.0, 9000, 16384)),
        ((FIRST_UUID,), FIRST),
        # CUDA takes the beginning of a UUID, if only one GPU has it
        ((SECOND_UUID[:9],), SECOND),
        (("GPU-",), None),
        # a part of a GPU has its own memory, and no utilization of its own
        ((MIG_UUID,), GpuReading(None, 1500, 4864)),
        ((MIG_UUID, "1"), GpuReading(30.0, 9000, 16384)),
        # pretended GPUs, and those of other hosts
        (("7",), None),
        (("GPU-00000000-0000",), None),
        ((), None),
    ],
)
def test_gpus_are_found_by_the_entries_of_cuda_visible_devices(
    reader: GpuReader, devices: tuple[str, ...], expected: GpuReading | None
) -> None:
    assert reader.read(devices) == expected


def test_a_gpu_that_is_lost_is_not_measured_any_more_and_the_others_are(
    reader: GpuReader, library: Path
) -> None:
    assert reader.read(("0", "1")) == GpuReading(50.0, 9000, 16384)
    (library.parent / "lost").touch()
    assert reader.read(("0", "1")) == FIRST
    assert reader.read(("1",)) is None


def test_without_a_driver_nothing_is_measured(tmp_path: Path) -> None:
    reader = GpuReader({nvml.LIBRARY_VARIABLE: str(tmp_path / "libnvidia-ml.so.1")})
    assert reader.read(("0",)) is None
    assert reader.read(("0",)) is None


def test_a_library_without_a_driver_behind_it_measures_nothing(tmp_path: Path) -> None:
    broken = build_library(tmp_path, "-DINIT_CODE=9")
    assert GpuReader({nvml.LIBRARY_VARIABLE: str(broken)}).read(("0",)) is None


def test_another_library_of_that_name_measures_nothing(tmp_path: Path) -> None:
    other = build_library(tmp_path, "-DONLY_INIT")
    assert GpuReader({nvml.LIBRARY_VARIABLE: str(other)}).read(("0",)) is None


def test_a_library_without_a_function_measures_nothing_that_needs_it(tmp_path: Path) -> None:
    old = build_library(tmp_path, "-DWITHOUT_UUIDS")
    assert GpuReader({nvml.LIBRARY_VARIABLE: str(old)}).read(("0",)) == FIRST
    assert GpuReader({nvml.LIBRARY_VARIABLE: str(old)}).read((FIRST_UUID,)) is None


@pytest.mark.parametrize(
    ("setting", "devices"),
    [
        ("0,1", ("0", "1")),
        (" 2 , GPU-ab ", ("2", "GPU-ab")),
        ("0,-1,1", ("0",)),
        ("NoDevFiles", ()),
        ("", ()),
        ("MIG-1,MIG-GPU-2/1/0", ("MIG-1", "MIG-GPU-2/1/0")),
    ],
)
def test_entries_behind_an_invalid_one_are_hidden_as_in_cuda(
    setting: str, devices: tuple[str, ...]
) -> None:
    assert split_devices(setting) == devices


@pytest.mark.parametrize(
    ("environ", "devices"),
    [
        ({}, ()),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, ()),
        ({"NVIDIA_VISIBLE_DEVICES": "none"}, ()),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, ("all",)),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2"}, ("GPU-1", "GPU-2")),
        # numbers of the host: in the container they begin at 0
        ({"NVIDIA_VISIBLE_DEVICES": "2,3"}, ("all",)),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2", "CUDA_VISIBLE_DEVICES": "1"}, ("1",)),
        ({"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": ""}, ()),
    ],
)
def test_the_gpus_of_a_container_are_in_its_environment(
    environ: dict[str, str], devices: tuple[str, ...]
) -> None:
    assert list_devices(environ) == devices
