"""Describe this machine: processor, memory, clocks, versions. Reads /proc, runs nvidia-smi."""

from __future__ import annotations

import fcntl
import os
import platform
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from batchyard.bench.discovery import Device, cpu_count
from batchyard.bench.memory import meminfo_bytes
from batchyard.bench.workload import GPU

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
_NVIDIA_FIELDS = (
    "name",
    "driver_version",
    "memory.total",
    "clocks.sm",
    "clocks.max.sm",
    "clocks.mem",
    "power.limit",
)
_NVIDIA_TIMEOUT_S = 20


def describe(
    device: Device, threads: int, keeps_buffers: bool, environ: Mapping[str, str]
) -> dict[str, Any]:
    """Return the description of this machine that is written with the results."""
    cpuinfo = read_text("/proc/cpuinfo")
    facts: dict[str, Any] = {
        "cpu": cpu_model(cpuinfo),
        "cpus": cpu_count(),
        "cpu_clock_mhz": cpu_clock_mhz(cpuinfo),
        "memory_bytes": meminfo_bytes(read_text("/proc/meminfo"), "MemTotal"),
        "threads": threads,
        "thread_variables": {name: environ[name] for name in _THREAD_VARIABLES if name in environ},
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()),
        "malloc": "large buffers kept between calls" if keeps_buffers else "as the system has it",
        "libraries": {kit.title: _version(kit.version, kit.about) for kit in device.kits.values()},
    }
    if blas := blas_of(device):
        facts["blas"] = blas
    if device.kind == GPU:
        facts["gpus"] = nvidia_gpus()
    return facts


def _version(version: str, about: Mapping[str, Any]) -> str:
    details = ", ".join(str(detail) for detail in about.values())
    return f"{version} ({details})" if details else version


def blas_of(device: Device) -> str:
    """Return name and version of the BLAS library that NumPy uses; empty if unknown."""
    if "numpy" not in device.kits:
        return ""
    try:
        blas = device.kits["numpy"].lib.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{blas['name']} {blas['version']}"
    except (KeyError, TypeError, AttributeError):
        return ""


def cpu_model(cpuinfo: str) -> str:
    """Return the first model name, or the architecture: ARM machines list no model name."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return " ".join(value.replace("(R)", "").replace("(TM)", "").split())
    return platform.machine()


def cpu_clock_mhz(cpuinfo: str) -> float | None:
    """Return the current clock of the fastest core, in MHz; None if unknown."""
    clocks = [line.partition(":")[2] for line in cpuinfo.splitlines() if line.startswith("cpu MHz")]
    return max((float(clock) for clock in clocks), default=None)


def nvidia_gpus() -> list[dict[str, str]]:
    """Return the facts of each NVIDIA GPU by field name; empty if nvidia-smi fails."""
    query = f"--query-gpu={','.join(_NVIDIA_FIELDS)}"
    try:
        output = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=_NVIDIA_TIMEOUT_S,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return parse_gpus(output)


def parse_gpus(output: str) -> list[dict[str, str]]:
    """Parse the CSV output of nvidia-smi; lines with another number of cells are ignored."""
    rows = [
        [cell.strip() for cell in line.split(",")] for line in output.splitlines() if line.strip()
    ]
    return [
        dict(zip(_NVIDIA_FIELDS, row, strict=True))
        for row in rows
        if len(row) == len(_NVIDIA_FIELDS)
    ]


def use_threads(threads: int) -> None:
    """Set the number of threads. Call this before libraries are imported; some read it then."""
    for name in _THREAD_VARIABLES:
        os.environ[name] = str(threads)


@contextmanager
def one_job_at_a_time(
    run: str, on_wait: Callable[[], None], folder: Path | None = None
) -> Iterator[None]:
    """Let the two jobs of a run measure one after the other if they share this machine.

    ``on_wait`` is called if the other job is measuring.
    """
    name = f"batchyard-bench-{os.getuid()}-{zlib.crc32(run.encode()):08x}.lock"
    path = (folder or Path(tempfile.gettempdir())) / name
    try:
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        yield  # no lock file can be made: measure without it
        return
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        # A waiting job has the file open already.
        path.unlink(missing_ok=True)
        os.close(file)


def read_text(path: str) -> str:
    """Return the content of a file of the system; empty if it cannot be read."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""
