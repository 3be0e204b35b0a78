"""Read free and peak memory from /proc, and tell malloc whether to keep large buffers."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
#: memory limit and memory in use of a container: cgroup 2, then cgroup 1
_CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)
#: limit on the resident memory of this process, set by the user
_limit_bytes: int | None = None
#: options of mallopt, from glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def limit_to(amount_bytes: int) -> None:
    """Let ``available_bytes`` respect a limit that this process cannot see."""
    global _limit_bytes
    _limit_bytes = amount_bytes


def available_bytes() -> int | None:
    """Return the memory that this process can still allocate; None if unknown.

    The smallest of: free on the machine, free in its container, free under ``limit_to``.
    """
    free_bytes = [meminfo_bytes(_read(_MEMINFO), "MemAvailable")]
    if _limit_bytes is not None:
        resident_bytes = meminfo_bytes(_read(_STATUS), "VmRSS") or 0
        free_bytes.append(max(0, _limit_bytes - resident_bytes))
    free_bytes += [cgroup_free_bytes(_read(limit), _read(used)) for limit, used in _CGROUPS]
    return min((amount for amount in free_bytes if amount is not None), default=None)


def reset_peak() -> None:
    """Start a new measurement of ``peak_bytes``."""
    with suppress(OSError):
        _CLEAR_REFS.write_text("5")


def peak_bytes() -> int | None:
    """Return the largest resident memory of this process since ``reset_peak``."""
    return meminfo_bytes(_read(_STATUS), "VmHWM")


def meminfo_bytes(text: str, name: str) -> int | None:
    """Return the bytes of a line like `MemAvailable:  123 kB`; None if there is no such line."""
    for line in text.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None


def cgroup_free_bytes(limit: str, used: str) -> int | None:
    """Return the free memory of a cgroup; None if the cgroup has no limit."""
    if not limit.strip().isdigit() or not used.strip().isdigit():
        return None
    return max(0, int(limit) - int(used))


def keep_buffers() -> bool:
    """Let malloc keep large buffers instead of returning them to the system after each call.

    Otherwise each page has to be requested and zeroed again, which can cost more than the work
    itself; the allocators of CUDA libraries keep buffers too. Returns False if malloc is not
    glibc's.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        if hasattr(libc, "gnu_get_libc_version"):
            return bool(libc.mallopt(_M_MMAP_MAX, 0)) and bool(libc.mallopt(_M_TRIM_THRESHOLD, -1))
    return False


def return_buffers() -> None:
    """Return free buffers of malloc to the system."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
