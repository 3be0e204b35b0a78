"""CPU time and memory of children, from /proc and from the cgroups of containers. Linux only.

One pass reads a small file for each process of the machine, and another one for each process of a
child. Parsing is separate from reading, for the tests.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

#: Returns the content of a file; empty if it cannot be read, as for a process that has ended.
Read = Callable[[str], bytes]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_READ_BYTES = 8192
_CGROUPS = "/sys/fs/cgroup"
_MAX_SEARCHES = 3


class ProcessUse(NamedTuple):
    """What all processes of a child use together."""

    #: CPU time so far, that of ended processes for which a living one has waited included.
    cpu_s: float
    memory_kib: int


class Process(NamedTuple):
    """A line of /proc/<pid>/stat."""

    parent: int
    session: int
    #: CPU time of the process, and of the processes that it has waited for.
    ticks: int


def read_file(path: str) -> bytes:
    """Return the first bytes of a file; empty if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, _READ_BYTES)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def list_names(folder: str) -> list[str]:
    """Return the names in a folder; none if it cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


# -- processes -------------------------------------------------------------------------------------


def measure_processes(
    leaders: Iterable[int],
    read: Read = read_file,
    list_folder: Callable[[str], Sequence[str]] = list_names,
) -> dict[int, ProcessUse]:
    """Return what each leader uses, with the processes of its session and all descendants.

    A leader that has ended is left out.
    """
    pids = [int(name) for name in list_folder("/proc") if name.isdigit()]
    processes = {
        pid: process
        for pid in pids
        if (process := parse_stat(read(f"/proc/{pid}/stat"))) is not None
    }
    families = group_by_leader(leaders, processes)
    machine_kib = parse_machine_kib(read("/proc/meminfo")) if families else 0
    return {
        leader: ProcessUse(
            sum(processes[pid].ticks for pid in family) / _TICKS_PER_S,
            add_memory(
                [parse_memory_kib(read(f"/proc/{pid}/status")) for pid in family], machine_kib
            ),
        )
        for leader, family in families.items()
    }


def parse_stat(stat: bytes) -> Process | None:
    """Return the process of a text of /proc/<pid>/stat; None if it is no such text."""
    # The program's name in brackets may itself have brackets and spaces.
    fields = stat.rpartition(b")")[2].split()
    if len(fields) < 15:
        return None
    return Process(int(fields[1]), int(fields[3]), sum(map(int, fields[11:15])))


def group_by_leader(
    leaders: Iterable[int], processes: Mapping[int, Process]
) -> dict[int, list[int]]:
    """Return leader -> its processes. A process belongs to its session's leader, or an ancestor."""
    families: dict[int, list[int]] = {pid: [] for pid in leaders if pid in processes}
    owners: dict[int, int | None] = {pid: pid for pid in families}
    for pid in processes:
        owner = _find_owner(pid, processes, owners)
        if owner is not None:
            families[owner].append(pid)
    return families


def _find_owner(
    pid: int, processes: Mapping[int, Process], owners: dict[int, int | None]
) -> int | None:
    """Return the leader of a process, and note it for all processes on the way up to it."""
    chain = []
    owner: int | None = None
    while (process := processes.get(pid)) is not None:
        if pid in owners:
            owner = owners[pid]
            break
        chain.append(pid)
        # While /proc was read, a number may have got another process: no circle is followed.
        owners[pid] = None
        if owners.get(process.session) == process.session:
            owner = process.session
            break
        pid = process.parent
    owners.update(dict.fromkeys(chain, owner))
    return owner


def parse_memory_kib(status: bytes) -> tuple[int, int]:
    """Return the memory of a process without files: its own, and what it shares with others."""
    private = shared = 0
    for line in status.splitlines():
        # Kernels before 4.5 show only the whole, which comes first.
        if line.startswith((b"VmRSS:", b"RssAnon:")):
            private = int(line.split()[1])
        elif line.startswith(b"RssShmem:"):
            shared = int(line.split()[1])
            break
    return private, shared


def parse_machine_kib(meminfo: bytes) -> int:
    """Return the memory of all processes without files, each page once; 0 if it is not shown."""
    amounts = _parse_lines(meminfo.replace(b":", b"").replace(b" kB", b""))
    return amounts["AnonPages"] + amounts.get("Shmem", 0) if "AnonPages" in amounts else 0


def add_memory(memory_kib: Sequence[tuple[int, int]], machine_kib: int = 0) -> int:
    """Return the memory of several processes together. Shared memory is taken to be the same.

    Pages that processes share after a fork count for each of them, though never for more than
    ``machine_kib``, the memory of all processes of the machine; 0 if that is not known.
    """
    sum_kib = sum(private for private, _ in memory_kib)
    sum_kib += max((shared for _, shared in memory_kib), default=0)
    if not machine_kib:
        return sum_kib
    return min(sum_kib, max(machine_kib, *map(sum, memory_kib), 0))


# -- containers ------------------------------------------------------------------------------------


class ContainerCgroups:
    """The cgroups of containers of this machine, found by the ids of the containers.

    The path depends on Docker's cgroup driver, on systemd and on the version of cgroups, so it is
    searched for once. Containers of an engine on another machine, or in another namespace of
    cgroups, have none here.
    """

    def __init__(
        self,
        read: Read = read_file,
        list_folders: Callable[[str], Iterable[str]] | None = None,
        root: str = _CGROUPS,
    ) -> None:
        """``list_folders``: the paths of all folders below a folder."""
        self._read = read
        self._list_folders = list_folders or _walk_folders
        self._root = root
        #: Paths with the place of an id, by which the cgroups of a container are found.
        self._patterns: tuple[str, ...] = ()
        self._searches_left = _MAX_SEARCHES

    def measure(self, container_id: str) -> ProcessUse | None:
        """Return what a container uses; None if its cgroup is not found."""
        if not self._patterns and self._searches_left:
            # A container that has just ended has no cgroup any more.
            self._searches_left -= 1
            self._patterns = tuple(self._find_patterns(container_id))
        folders = [pattern.replace("{id}", container_id) for pattern in self._patterns]
        # Version 1 has a folder for each controller.
        texts = {
            name: b"\n".join(self._read(f"{folder}/{name}") for folder in folders)
            for name in _CGROUP_FILES
        }
        cpu_s, memory_kib = parse_cgroup_cpu_s(texts), parse_cgroup_memory_kib(texts)
        if cpu_s is None and memory_kib is None:
            return None
        return ProcessUse(cpu_s or 0.0, memory_kib or 0)

    def _find_patterns(self, container_id: str) -> Iterator[str]:
        """Return the paths of the container's cgroups that measure anything, without its id."""
        for path in self._list_folders(self._root):
            # Not the folders that a container has made below its own one.
            if container_id in path.rpartition("/")[2]:
                if any(self._read(f"{path}/{name}") for name in _CGROUP_FILES):
                    yield path.replace(container_id, "{id}")


_CGROUP_FILES = ("cpu.stat", "cpuacct.usage", "memory.stat")


def parse_cgroup_cpu_s(texts: Mapping[str, bytes]) -> float | None:
    """Return the CPU time of a cgroup, version 2 or 1; None if the files have none."""
    usage_us = _parse_lines(texts["cpu.stat"]).get("usage_usec")
    if usage_us is not None:
        return usage_us / 1e6
    usage_ns = texts["cpuacct.usage"].strip()
    return int(usage_ns) / 1e9 if usage_ns.isdigit() else None


def parse_cgroup_memory_kib(texts: Mapping[str, bytes]) -> int | None:
    """Return the memory of a cgroup without files, version 2 or 1; None if the files have none."""
    amounts = _parse_lines(texts["memory.stat"])
    if "anon" in amounts:
        return (amounts["anon"] + amounts.get("shmem", 0)) // 1024
    if "total_rss" in amounts:
        return (amounts["total_rss"] + amounts.get("total_shmem", 0)) // 1024
    return None


def _parse_lines(text: bytes) -> dict[str, int]:
    pairs = (line.split() for line in text.decode(errors="replace").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _walk_folders(root: str) -> Iterable[str]:
    for folder, _, _ in os.walk(root):
        yield folder
