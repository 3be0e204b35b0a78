"""The vCPUs, memory and GPUs of this machine. Parsing is separate from reading, for the tests."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from batchyard.batch.jobs import Resources
from batchyard.errors import OperationalError
from batchyard.quick_dataclasses import dataclass

_NVIDIA_SMI = (
    "nvidia-smi",
    "--query-gpu=index,name,memory.total,driver_version",
    "--format=csv,noheader,nounits",
)
_NVIDIA_SMI_TIMEOUT_S = 20


@dataclass(frozen=True, slots=True)
class Gpu:
    index: int
    name: str
    memory_mib: int
    driver: str


#: Files with the memory limit of this process's cgroup, as in a container: version 2, version 1.
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def measure_capacity(gpu_count: int) -> Resources:
    """Return the vCPUs and the memory that this process may use, with the number of GPUs."""
    memory = parse_meminfo_mib(Path("/proc/meminfo").read_text())
    for path in map(Path, _CGROUP_LIMITS):
        if path.exists():
            memory = min(memory, parse_cgroup_limit_mib(path.read_text()) or memory)
    return Resources(count_vcpus(), memory, gpu_count)


def parse_cgroup_limit_mib(text: str) -> int | None:
    """Return the limit in the text of a cgroup's file; None if there is no limit."""
    return int(text) // 2**20 if text.strip().isdigit() else None


def count_vcpus() -> int:
    return len(os.sched_getaffinity(0))


def parse_meminfo_mib(meminfo: str) -> int:
    """Return MemTotal of the text of /proc/meminfo. Raises ValueError."""
    for line in meminfo.splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024
    raise ValueError("/proc/meminfo has no MemTotal line")


def find_gpus(
    command: Sequence[str] = _NVIDIA_SMI, environ: Mapping[str, str] = os.environ
) -> tuple[Gpu, ...]:
    """Return the GPUs of the driver, restricted to CUDA_VISIBLE_DEVICES; empty without a driver."""
    import subprocess  # slow to import, and only pipelines with GPUs need it

    try:
        completed = subprocess.run(
            command, capture_output=True, timeout=_NVIDIA_SMI_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    if completed.returncode:
        return ()
    gpus = parse_nvidia_smi(completed.stdout.decode(errors="replace"))
    return select_visible_gpus(gpus, environ.get("CUDA_VISIBLE_DEVICES"))


def parse_nvidia_smi(text: str) -> tuple[Gpu, ...]:
    """Return the GPUs in the CSV of nvidia-smi. Other lines, like warnings, are ignored."""
    gpus = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 4 and fields[0].isdigit():
            memory = int(fields[2]) if fields[2].isdigit() else 0
            gpus.append(Gpu(int(fields[0]), fields[1], memory, fields[3]))
    return tuple(gpus)


def select_visible_gpus(gpus: tuple[Gpu, ...], setting: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES selects.

    Like CUDA, this stops at the first entry that is no GPU, and selects none if a GPU is repeated.
    """
    if setting is None:
        return gpus
    by_index = {str(gpu.index): gpu for gpu in gpus}
    selected = []
    for entry in setting.split(","):
        gpu = by_index.get(entry.strip())
        if gpu is None:
            break
        if gpu in selected:
            return ()
        selected.append(gpu)
    return tuple(selected)


def max_open_files(pid: int = 0) -> int:
    """Return the system's hard limit of open files for a process; 0 means this process."""
    try:
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    except OSError:  # the process has ended, or belongs to somebody else
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def allow_open_files(count: int, at_best: int = 0) -> None:
    """Raise the limit of open files to at least ``count``, and to ``at_best`` if that is allowed.

    Raises OperationalError where the system's hard limit is lower than ``count``.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = max(count, at_best if hard == resource.RLIM_INFINITY else min(at_best, hard))
    if soft >= count:
        return
    if hard != resource.RLIM_INFINITY and hard < count:
        raise OperationalError(
            f"so many children at once need {count} open files, and the limit is {hard}",
            hint="raise it with `ulimit -Hn`, or run fewer at once",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
