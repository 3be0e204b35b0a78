"""Memory of this machine and process: what is free, what was used at most, and malloc's manners. Reads /proc."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
#: a container's limit and use: cgroup 2, then 1
_CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)
#: what this process may have resident, where somebody has said so
_most_bytes: int | None = None
#: of glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def use_at_most(amount_bytes: int) -> None:
    """For surroundings whose limit cannot be seen from inside."""
    global _most_bytes
    _most_bytes = amount_bytes


def available_bytes() -> int | None:
    """What a process can still get: of the machine, of its container, of what it may use, whichever is least."""
    free = [kib_of(_text(_MEMINFO), "MemAvailable")]
    if _most_bytes is not None:
        free.append(max(0, _most_bytes - (kib_of(_text(_STATUS), "VmRSS") or 0)))
    free += [left_in(_text(limit), _text(used)) for limit, used in _CGROUPS]
    return min((amount for amount in free if amount is not None), default=None)


def reset_peak() -> None:
    with suppress(OSError):
        _CLEAR_REFS.write_text("5")


def peak_bytes() -> int | None:
    """The most that the process had resident since ``reset_peak``."""
    return kib_of(_text(_STATUS), "VmHWM")


def kib_of(text: str, name: str) -> int | None:
    """Of lines like `MemAvailable:  123 kB`, in bytes."""
    for line in text.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None


def left_in(limit: str, used: str) -> int | None:
    """Of a cgroup; None where it has no limit."""
    if not limit.strip().isdigit() or not used.strip().isdigit():
        return None
    return max(0, int(limit) - int(used))


def keep_buffers() -> bool:
    """Asks malloc to keep large buffers instead of returning them to the system after each call.

    Returned, each page has to be asked for and zeroed again, which can cost more than the work itself; the
    allocators of CUDA libraries keep theirs too. False where malloc is not glibc's.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        if hasattr(libc, "gnu_get_libc_version"):
            return bool(libc.mallopt(_M_MMAP_MAX, 0)) and bool(libc.mallopt(_M_TRIM_THRESHOLD, -1))
    return False


def return_buffers() -> None:
    """What malloc has kept goes back to the system."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
