"""Processes of this machine, read from /proc: their parents, sessions and tokens. Linux only."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

from batchyard.errors import OperationalError

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make orphans of children become children of this process instead of init's."""
    import ctypes  # slow to import, and `status` needs only the functions that read

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children_of_this_process() -> list[int]:
    return children_of("self")


def children_of(process: int | str) -> list[int]:
    """Return the children of a process; none if the process is gone."""
    children: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            with suppress(OSError), open(f"/proc/{process}/task/{thread}/children") as file:
                children += [int(pid) for pid in file.read().split()]
    return children


def list_with_descendants(pids: Iterable[int]) -> list[int]:
    """Return the processes, followed by all their descendants."""
    family = list(pids)
    children = _children_by_parent() if family else {}
    for pid in family:  # the list grows during the loop
        family += children.pop(pid, [])
    return family


def memory_mib(leaders: Iterable[int]) -> dict[int, int]:
    """Return for each process the memory of itself and its descendants.

    Shared pages are counted once for each process.
    """
    children = _children_by_parent()
    page_kib = os.sysconf("SC_PAGESIZE") // 1024
    used_mib = {}
    for leader in leaders:
        family = [leader]
        for pid in family:  # the list grows during the loop
            family += children.get(pid, [])
        used_mib[leader] = sum(_resident_pages(pid) for pid in family) * page_kib // 1024
    return used_mib


def anonymous_kib(leaders: Iterable[int]) -> dict[int, int]:
    """Return for each process the memory without files of the largest of itself and descendants.

    It is no sum, since processes share pages after a fork.
    """
    children = _children_by_parent()
    page_kib = os.sysconf("SC_PAGESIZE") // 1024
    largest_kib = {}
    for leader in leaders:
        family = [leader]
        for pid in family:  # the list grows during the loop
            family += children.get(pid, [])
        largest_kib[leader] = max(map(_anonymous_pages, family)) * page_kib
    return largest_kib


def own_peak_kib() -> int:
    """Return the largest amount of memory that this process ever had."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


def find_by_token(token: str) -> list[int]:
    """Return the processes with the token in their environment, and all related processes.

    These are the members of their sessions, and the descendants of both.
    """
    needle = token.encode()
    carriers = [pid for pid in list_pids() if pid != os.getpid() and needle in environ_of(pid)]
    if not carriers:
        return []
    # Every child leads its own session. A process with a cleared environment is still in it.
    sessions = {session_of(pid) for pid in carriers} - {None, os.getsid(0)}
    members = [pid for pid in list_pids() if pid not in carriers and session_of(pid) in sessions]
    return list_with_descendants(carriers + members)


def end_by_token(token: str, wait_s: float = 30.0) -> int:
    """Kill the processes with the token until none is left, and return their number.

    Repeats, since processes may fork meanwhile. Raises OperationalError after ``wait_s`` seconds.
    """
    deadline = time.monotonic() + wait_s
    count = 0
    while pids := [pid for pid in find_by_token(token) if _is_alive(pid)]:
        if time.monotonic() > deadline:
            raise OperationalError(
                f"{len(pids)} processes of an earlier engine do not end: {pids[:5]}",
                hint="end them by hand, then try again",
            )
        count += len(pids)
        kill_all(pids)
    return count


def kill_all(pids: Iterable[int], wait_s: float = 10.0) -> None:
    """Send SIGKILL, and wait until the processes are gone or zombies."""
    pids = list(pids)
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + wait_s
    while any(_is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.005)


def _children_by_parent() -> dict[int, list[int]]:
    children = defaultdict(list)
    for pid in list_pids():
        parent = parent_of(pid)
        if parent is not None:
            children[parent].append(pid)
    return children


def _resident_pages(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1])
    except (OSError, IndexError):
        return 0


def _anonymous_pages(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            _, resident, shared, *_ = file.read().split()
            return int(resident) - int(shared)
    except (OSError, ValueError):
        return 0


def list_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def parent_of(pid: int) -> int | None:
    fields = _stat_of(pid)
    return int(fields[1]) if fields else None


def session_of(pid: int) -> int | None:
    fields = _stat_of(pid)
    return int(fields[3]) if fields else None


def _is_alive(pid: int) -> bool:
    fields = _stat_of(pid)
    return bool(fields) and fields[0] not in ("Z", "X")


def _stat_of(pid: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat from the state on; empty if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            # The program's name in brackets may itself have brackets and spaces.
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def environ_of(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""
