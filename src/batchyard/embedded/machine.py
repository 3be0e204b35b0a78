"""What this machine has: vCPUs, memory, GPUs. Reading and understanding are apart, so that recorded text is enough."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from batchyard.batch.jobs import Resources
from batchyard.errors import OperationalError

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


#: where a cgroup that we are in (a container's, say) says how much memory it may have: version 2, version 1
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def capacity(gpu_count: int) -> Resources:
    memory = memory_mib(Path("/proc/meminfo").read_text())
    for path in map(Path, _CGROUP_LIMITS):
        if path.exists():
            memory = min(memory, cgroup_limit_mib(path.read_text()) or memory)
    return Resources(vcpu_count(), memory, gpu_count)


def cgroup_limit_mib(text: str) -> int | None:
    """None where the limit's file says there is none."""
    return int(text) // 2**20 if text.strip().isdigit() else None


def vcpu_count() -> int:
    return len(os.sched_getaffinity(0))


def memory_mib(meminfo: str) -> int:
    """MemTotal of /proc/meminfo's text."""
    for line in meminfo.splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024
    raise ValueError("/proc/meminfo has no MemTotal line")


def find_gpus(
    command: Sequence[str] = _NVIDIA_SMI, environ: Mapping[str, str] = os.environ
) -> tuple[Gpu, ...]:
    """The GPUs that the driver knows, narrowed to CUDA_VISIBLE_DEVICES where it is set; none where it has no driver."""
    import subprocess  # slow to import, and only pipelines with GPUs need it

    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_NVIDIA_SMI_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    gpus = parse_nvidia_smi(done.stdout.decode(errors="replace")) if done.returncode == 0 else ()
    return visible(gpus, environ.get("CUDA_VISIBLE_DEVICES"))


def parse_nvidia_smi(text: str) -> tuple[Gpu, ...]:
    """The lines of nvidia-smi's CSV; anything else it prints (warnings, "No devices were found") is passed over."""
    gpus = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 4 and fields[0].isdigit():
            memory = int(fields[2]) if fields[2].isdigit() else 0
            gpus.append(Gpu(int(fields[0]), fields[1], memory, fields[3]))
    return tuple(gpus)


def visible(gpus: tuple[Gpu, ...], setting: str | None) -> tuple[Gpu, ...]:
    """What CUDA_VISIBLE_DEVICES leaves. Like CUDA, it stops at the first entry that names no GPU, and knows none at all
    where one is named twice."""
    if setting is None:
        return gpus
    by_index = {str(gpu.index): gpu for gpu in gpus}
    chosen = []
    for entry in setting.split(","):
        gpu = by_index.get(entry.strip())
        if gpu is None:
            break
        if gpu in chosen:
            return ()
        chosen.append(gpu)
    return tuple(chosen)


def allow_open_files(count: int) -> None:
    """Raise the limit of open files to at least ``count``.

    Raises OperationalError where the system's hard limit is lower.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= count:
        return
    if hard != resource.RLIM_INFINITY and hard < count:
        raise OperationalError(
            f"so many children at once need {count} open files, and the limit is {hard}",
            hint="raise it with `ulimit -Hn`, or give fewer --cpus",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
