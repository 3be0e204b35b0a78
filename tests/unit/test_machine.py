"""What a machine has, from text as the driver and the kernel really write it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from batchyard.batch.jobs import Resources
from batchyard.embedded.machine import (
    Gpu,
    count_vcpus,
    find_gpus,
    measure_capacity,
    parse_meminfo_mib,
    parse_nvidia_smi,
    select_visible_gpus,
)

# nvidia-smi --query-gpu=index,name,memory.total,driver_version --format=csv,noheader,nounits
ONE_T4 = "0, Tesla T4, 15360, 550.163.01\n"
FOUR_A10G = """\
0, NVIDIA A10G, 23028, 535.183.01
1, NVIDIA A10G, 23028, 535.183.01
2, NVIDIA A10G, 23028, 535.183.01
3, NVIDIA A10G, 23028, 535.183.01
"""
EIGHT_H100 = "".join(f"{index}, NVIDIA H100 80GB HBM3, 81559, 570.133.20\n" for index in range(8))
NO_DEVICES = "No devices were found\n"
WARNED = """\
WARNING: infoROM is corrupted at gpu 0000:00:1E.0
0, Tesla T4, 15360, 550.163.01
"""
NO_MEMORY_KNOWN = "0, NVIDIA GB10, [N/A], 580.95.05\n"
NO_DRIVER = """\
NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that \
the latest NVIDIA driver is installed and running.

"""
MISMATCH = (
    "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.163\n"
)


def test_one_gpu_is_read() -> None:
    assert parse_nvidia_smi(ONE_T4) == (Gpu(0, "Tesla T4", 15_360, "550.163.01"),)


def test_several_gpus_are_read_in_order() -> None:
    gpus = parse_nvidia_smi(FOUR_A10G)
    assert gpus == tuple(Gpu(index, "NVIDIA A10G", 23_028, "535.183.01") for index in range(4))


def test_a_name_with_spaces_and_numbers_is_one_name() -> None:
    gpus = parse_nvidia_smi(EIGHT_H100)
    assert len(gpus) == 8
    assert gpus[7] == Gpu(7, "NVIDIA H100 80GB HBM3", 81_559, "570.133.20")


def test_lines_may_end_as_windows_ends_them() -> None:
    assert parse_nvidia_smi(ONE_T4.replace("\n", "\r\n")) == parse_nvidia_smi(ONE_T4)


def test_a_warning_before_the_list_is_passed_over() -> None:
    assert parse_nvidia_smi(WARNED) == parse_nvidia_smi(ONE_T4)


def test_memory_that_the_driver_does_not_know_is_0() -> None:
    assert parse_nvidia_smi(NO_MEMORY_KNOWN) == (Gpu(0, "NVIDIA GB10", 0, "580.95.05"),)


@pytest.mark.parametrize(
    "text", ["", "\n", NO_DEVICES, NO_DRIVER, MISMATCH, "a, b, c, d\n", "0, Tesla T4\n"]
)
def test_what_is_no_gpu_is_not_taken_for_one(text: str) -> None:
    assert parse_nvidia_smi(text) == ()


# -- CUDA_VISIBLE_DEVICES ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "indices"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("0", [0]),
        ("1,0", [1, 0]),
        (" 3 , 1 ", [3, 1]),
        ("0,9,1", [0]),
        ("-1", []),
        ("2,-1,3", [2]),
        ("NoDevFiles", []),
        ("GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77", []),
        ("1,GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77,0", [1]),
        ("MIG-GPU-5d5ba0d6/1/0", []),
    ],
)
def test_cuda_visible_devices_narrows_and_orders_up_to_the_first_entry_that_is_no_gpu(
    setting: str | None, indices: list[int]
) -> None:
    assert [
        gpu.index for gpu in select_visible_gpus(parse_nvidia_smi(FOUR_A10G), setting)
    ] == indices


@pytest.mark.parametrize("setting", ["2,2", "0,1,0,2"])
def test_a_gpu_named_twice_leaves_none_as_in_cuda(setting: str) -> None:
    assert select_visible_gpus(parse_nvidia_smi(FOUR_A10G), setting) == ()


# -- asking the driver -------------------------------------------------------------------------


def nvidia_smi(folder: Path, text: bytes | str, exit_code: int = 0) -> tuple[str, ...]:
    """Return the command of a program that prints the recorded output of nvidia-smi."""
    output_file = folder / "output.txt"
    output_file.write_bytes(text if isinstance(text, bytes) else text.encode())
    script = folder / "nvidia-smi"
    script.write_text(
        f"#!/bin/sh\ncat {output_file}\necho something on stderr >&2\nexit {exit_code}\n"
    )
    script.chmod(0o755)
    return (str(script), "--query-gpu=index", "--format=csv")


def test_the_driver_s_gpus_are_found(tmp_path: Path) -> None:
    assert find_gpus(nvidia_smi(tmp_path, FOUR_A10G), environ={}) == parse_nvidia_smi(FOUR_A10G)


def test_the_driver_s_gpus_are_narrowed_by_the_environment(tmp_path: Path) -> None:
    command = nvidia_smi(tmp_path, FOUR_A10G)
    gpus = find_gpus(command, environ={"CUDA_VISIBLE_DEVICES": "3,1"})
    assert [gpu.index for gpu in gpus] == [3, 1]
    assert find_gpus(command, environ={"CUDA_VISIBLE_DEVICES": ""}) == ()


def test_a_machine_without_nvidia_smi_has_no_gpu(tmp_path: Path) -> None:
    assert find_gpus((str(tmp_path / "nvidia-smi"),), environ={}) == ()


def test_an_nvidia_smi_that_may_not_be_executed_is_no_gpu(tmp_path: Path) -> None:
    command = nvidia_smi(tmp_path, ONE_T4)
    Path(command[0]).chmod(0o644)
    assert find_gpus(command, environ={}) == ()


@pytest.mark.parametrize(
    ("text", "exit_code"), [(NO_DRIVER, 9), (NO_DEVICES, 6), (MISMATCH, 18), (ONE_T4, 1)]
)
def test_an_nvidia_smi_that_fails_is_no_gpu_whatever_it_says(
    tmp_path: Path, text: str, exit_code: int
) -> None:
    assert find_gpus(nvidia_smi(tmp_path, text, exit_code), environ={}) == ()


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    command = nvidia_smi(tmp_path, b"WARNING: \xff\xfe\n" + ONE_T4.encode())
    assert find_gpus(command, environ={}) == parse_nvidia_smi(ONE_T4)


def test_without_an_environment_given_it_is_the_process_s_own(tmp_path: Path) -> None:
    expected = select_visible_gpus(
        parse_nvidia_smi(FOUR_A10G), os.environ.get("CUDA_VISIBLE_DEVICES")
    )
    assert find_gpus(nvidia_smi(tmp_path, FOUR_A10G)) == expected


# -- memory and vCPUs --------------------------------------------------------------------------

MEMINFO = """\
MemTotal:       16265692 kB
MemFree:         1234567 kB
MemAvailable:   12345678 kB
Buffers:          101432 kB
"""


def test_memory_is_memtotal_in_whole_mib() -> None:
    assert parse_meminfo_mib(MEMINFO) == 15_884
    assert parse_meminfo_mib("Before:  1 kB\n" + MEMINFO) == 15_884


def test_text_without_memtotal_is_no_meminfo() -> None:
    with pytest.raises(ValueError, match="MemTotal"):
        parse_meminfo_mib("MemFree: 1 kB\n")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_this_machine_has_something() -> None:
    capacity = measure_capacity(3)
    assert capacity == Resources(count_vcpus(), capacity.memory_mib, 3)
    assert 1 <= capacity.vcpus <= (os.cpu_count() or 1)
    assert capacity.memory_mib > 0
