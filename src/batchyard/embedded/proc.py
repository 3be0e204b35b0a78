"""Other processes, by way of /proc: whose child is who, and who carries a run's token. Linux only."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

from batchyard.errors import OperationalError

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """From now on, what a child leaves behind becomes this process's child instead of init's, so that it is found."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children_of_this_process() -> list[int]:
    children = []
    for thread in os.listdir("/proc/self/task"):
        with suppress(OSError), open(f"/proc/self/task/{thread}/children") as file:
            children += [int(pid) for pid in file.read().split()]
    return children


def with_descendants(pids: Iterable[int]) -> list[int]:
    """The processes, then their children, theirs, and so on."""
    children = _children_by_parent()
    found = list(pids)
    for pid in found:  # grows while it is walked
        found += children.pop(pid, [])
    return found


def memory_mib(leaders: Iterable[int]) -> dict[int, int]:
    """For each of the processes, what it and all that came of it have in memory. Shared pages count for each."""
    children = _children_by_parent()
    page_kib = os.sysconf("SC_PAGESIZE") // 1024
    found = {}
    for leader in leaders:
        family = [leader]
        for pid in family:  # grows while it is walked
            family += children.get(pid, [])
        found[leader] = sum(_resident_pages(pid) for pid in family) * page_kib // 1024
    return found


def with_token(token: str) -> list[int]:
    """The processes in whose environment the token is, whatever shares a session with them, and what came of those."""
    needle = token.encode()
    carriers = [pid for pid in all_pids() if pid != os.getpid() and needle in environ_of(pid)]
    # Every child of ours leads a session of its own; one that cleaned its environment is still in it.
    sessions = {session_of(pid) for pid in carriers} - {None, os.getsid(0)}
    members = [pid for pid in all_pids() if pid not in carriers and session_of(pid) in sessions]
    return with_descendants(carriers + members)


def end_carriers(token: str, wait_s: float = 30.0) -> int:
    """Ends all that ``with_token`` finds, again and again while some fork faster than they are found; says how many."""
    deadline = time.monotonic() + wait_s
    count = 0
    while found := [pid for pid in with_token(token) if _is_alive(pid)]:
        if time.monotonic() > deadline:
            raise OperationalError(
                f"{len(found)} processes that an earlier engine left running do not end: {found[:5]}",
                hint="end them by hand, then try again",
            )
        count += len(found)
        kill_all(found)
    return count


def kill_all(pids: Iterable[int], wait_s: float = 10.0) -> None:
    """SIGKILL, and returns once they are gone or are zombies that their parents have yet to see."""
    pids = list(pids)
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + wait_s
    while any(_is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.005)


def _children_by_parent() -> dict[int, list[int]]:
    children = defaultdict(list)
    for pid in all_pids():
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


def all_pids() -> list[int]:
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
    """State, parent, process group, session... of /proc/<pid>/stat; empty if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            # The name in brackets may hold anything, brackets and spaces included.
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def environ_of(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""
