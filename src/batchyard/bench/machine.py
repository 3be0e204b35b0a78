"""What the numbers are measured on: processor, memory, clocks, versions, driver. Reads /proc; asks nvidia-smi."""

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

from batchyard.bench.discovery import Found, cpus
from batchyard.bench.memory import kib_of

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
    found: Found, threads: int, keeps_buffers: bool, environ: Mapping[str, str]
) -> dict[str, Any]:
    cpuinfo = _text("/proc/cpuinfo")
    facts: dict[str, Any] = {
        "cpu": cpu_model(cpuinfo),
        "cpus": cpus(),
        "cpu_clock_mhz": cpu_clock_mhz(cpuinfo),
        "memory_bytes": kib_of(_text("/proc/meminfo"), "MemTotal"),
        "threads": threads,
        "thread_variables": {name: environ[name] for name in _THREAD_VARIABLES if name in environ},
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()),
        "malloc": "large buffers kept between calls" if keeps_buffers else "as the system has it",
        "libraries": {kit.title: _version(kit.version, kit.about) for kit in found.kits.values()},
    }
    if blas := blas_of(found):
        facts["blas"] = blas
    if found.kind == "gpu":
        facts["gpus"] = nvidia_gpus()
    return facts


def _version(version: str, about: Mapping[str, Any]) -> str:
    more = ", ".join(str(value) for value in about.values())
    return f"{version} ({more})" if more else version


def blas_of(found: Found) -> str:
    if "numpy" not in found.kits:
        return ""
    try:
        blas = found.kits["numpy"].lib.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{blas['name']} {blas['version']}"
    except (KeyError, TypeError, AttributeError):
        return ""


def cpu_model(cpuinfo: str) -> str:
    """The first model name; ARM machines have none."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return " ".join(value.replace("(R)", "").replace("(TM)", "").split())
    return platform.machine()


def cpu_clock_mhz(cpuinfo: str) -> float | None:
    """The fastest core's, at this moment."""
    clocks = [line.partition(":")[2] for line in cpuinfo.splitlines() if line.startswith("cpu MHz")]
    return max((float(clock) for clock in clocks), default=None)


def nvidia_gpus() -> list[dict[str, str]]:
    query = f"--query-gpu={','.join(_NVIDIA_FIELDS)}"
    try:
        said = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=_NVIDIA_TIMEOUT_S,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return parse_gpus(said)


def parse_gpus(said: str) -> list[dict[str, str]]:
    rows = [
        [cell.strip() for cell in line.split(",")] for line in said.splitlines() if line.strip()
    ]
    return [
        dict(zip(_NVIDIA_FIELDS, row, strict=True))
        for row in rows
        if len(row) == len(_NVIDIA_FIELDS)
    ]


def use_threads(threads: int) -> None:
    """Before the libraries are imported, since some look only then."""
    for name in _THREAD_VARIABLES:
        os.environ[name] = str(threads)


@contextmanager
def in_turn(run: str, on_wait: Callable[[], None], folder: Path | None = None) -> Iterator[None]:
    """Of the two jobs of one run, one after the other: as processes of one machine, they would measure each other."""
    name = f"batchyard-bench-{os.getuid()}-{zlib.crc32(run.encode()):08x}.lock"
    path = (folder or Path(tempfile.gettempdir())) / name
    try:
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        yield  # nowhere to agree on it
        return
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        # Whoever waits has it open already.
        path.unlink(missing_ok=True)
        os.close(file)


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
