"""CPU time and memory of process trees and containers, from scripted and from real files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from batchyard.sampling import processes
from batchyard.sampling.processes import (
    ContainerCgroups,
    Process,
    ProcessUse,
    add_memory,
    group_by_leader,
    measure_processes,
    parse_memory_kib,
    parse_stat,
)

TICKS = os.sysconf("SC_CLK_TCK")


def stat(pid: int, parent: int, session: int, ticks: int, name: str = "a) (b c") -> bytes:
    """A line of /proc/<pid>/stat, whose four CPU times are ``ticks`` together."""
    times = f"{ticks - 3} 1 1 1"
    return (
        f"{pid} ({name}) S {parent} {session} {session} 0 -1 0 0 0 0 0 {times} 20 0 1 0\n".encode()
    )


def status(own_kib: int, shared_kib: int = 0) -> bytes:
    return (
        f"Name:\tx\nVmRSS:\t 999 kB\nRssAnon:\t{own_kib} kB\nRssFile:\t 50 kB\n"
        f"RssShmem:\t{shared_kib} kB\nThreads:\t1\n"
    ).encode()


def measure(leaders: list[int], files: Mapping[str, bytes]) -> dict[int, ProcessUse]:
    names = [path.split("/")[2] for path in files if path.endswith("stat")]
    return measure_processes(
        leaders, lambda path: files.get(path, b""), lambda folder: [*names, "meminfo", "self"]
    )


def test_a_child_has_its_session_and_its_descendants_and_nobody_else() -> None:
    files = {
        "/proc/1/stat": stat(1, 0, 1, 999),
        "/proc/10/stat": stat(10, 1, 10, TICKS),
        # an orphan of its session, and a daemon with a session of its own
        "/proc/11/stat": stat(11, 1, 10, TICKS),
        "/proc/12/stat": stat(12, 10, 12, TICKS),
        "/proc/13/stat": stat(13, 12, 12, TICKS),
        "/proc/20/stat": stat(20, 1, 20, 5 * TICKS),
        "/proc/10/status": status(1000, 64),
        "/proc/11/status": status(100, 32),
        "/proc/12/status": status(10, 64),
        "/proc/20/status": status(7),
    }
    assert measure([10, 20, 30], files) == {
        10: ProcessUse(4.0, 1000 + 100 + 10 + 64),
        20: ProcessUse(5.0, 7),
    }


def test_a_child_of_a_child_of_ours_belongs_to_both_only_once() -> None:
    table = {10: Process(1, 10, 1), 11: Process(10, 11, 1), 12: Process(11, 11, 1)}
    assert group_by_leader([10, 11], table) == {10: [10], 11: [11, 12]}


def test_a_circle_of_parents_is_not_followed() -> None:
    table = {10: Process(1, 10, 1), 40: Process(41, 99, 1), 41: Process(40, 99, 1)}
    assert group_by_leader([10], table) == {10: [10]}


def test_files_of_processes_that_have_just_ended_are_nothing() -> None:
    assert parse_stat(b"") is None
    assert parse_stat(b"10 (x) Z") is None
    assert parse_memory_kib(b"Name:\tx\nState:\tZ (zombie)\n") == (0, 0)
    assert add_memory([]) == 0


@pytest.mark.parametrize(
    ("machine_kib", "memory_kib"),
    [
        # four copies of the same 1000 KiB are seen, and the machine has 1500 in use
        (1500, 1500 + 20),
        (9000, 4 * 1000 + 64),
        # where the machine does not show it, or less than one of the processes has
        (None, 4 * 1000 + 64),
        (500, 1000 + 64),
    ],
)
def test_pages_of_forks_are_never_more_than_the_machine_has(
    machine_kib: int | None, memory_kib: int
) -> None:
    files = {f"/proc/{pid}/stat": stat(pid, 10, 10, TICKS) for pid in range(10, 14)}
    files |= {f"/proc/{pid}/status": status(1000, 64) for pid in range(10, 14)}
    if machine_kib is not None:
        files["/proc/meminfo"] = (
            f"MemTotal:       8000 kB\nAnonPages:      {machine_kib} kB\nShmem:    20 kB\n"
            "HugePages_Total:       0\n"
        ).encode()
    assert measure([10], files)[10].memory_kib == memory_kib


def test_an_old_kernel_shows_memory_only_with_files() -> None:
    assert parse_memory_kib(b"VmRSS:\t 700 kB\nThreads:\t1\n") == (700, 0)
    assert parse_memory_kib(status(300, 20)) == (300, 20)


FAMILY = """
import os, time
os.fork()
memory = bytearray(32 << 20)
while time.process_time() < 0.2:
    pass
os.write(1, b"x")
os.read(0, 1)
"""


def test_this_machine_shows_the_memory_and_cpu_time_of_a_family() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FAMILY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.read(2) == b"xx"
        use = measure_processes([process.pid])[process.pid]
        process.stdin.close()
    assert use.cpu_s >= 0.4 - 4 / TICKS
    assert 2 * 32 * 1024 < use.memory_kib < 2 * 96 * 1024


ID = "ab" * 32
V2 = {
    "cpu.stat": b"usage_usec 2500000\nuser_usec 1\n",
    "memory.stat": b"anon 1048576\nfile 999999999\nshmem 2048\n",
}


@pytest.mark.parametrize(
    "folder",
    [f"/c/system.slice/docker-{ID}.scope", f"/c/docker/{ID}", f"/c/user.slice/x/docker-{ID}.scope"],
)
def test_the_cgroup_of_a_container_is_found_by_its_id(folder: str) -> None:
    other = "cd" * 32
    files = {f"{folder}/{name}": text for name, text in V2.items()}
    files |= {path.replace(ID, other): text.replace(b"25", b"75") for path, text in files.items()}
    searches = []

    def list_folders(root: str) -> list[str]:
        searches.append(root)
        return ["/c", "/c/init.scope", folder, f"{folder}/nested"]

    cgroups = ContainerCgroups(lambda path: files.get(path, b""), list_folders, root="/c")
    assert cgroups.measure(ID) == ProcessUse(2.5, 1026)
    assert cgroups.measure(other) == ProcessUse(7.5, 1026)
    assert cgroups.measure("ef" * 32) is None
    assert searches == ["/c"]


def test_cgroups_of_version_1_have_a_folder_for_each_controller() -> None:
    files = {
        f"/c/cpu,cpuacct/docker/{ID}/cpuacct.usage": b"1500000000\n",
        f"/c/memory/docker/{ID}/memory.stat": b"total_rss 2097152\ntotal_shmem 1024\n",
    }
    folders = [path.rpartition("/")[0] for path in files]
    cgroups = ContainerCgroups(lambda path: files.get(path, b""), lambda root: folders, root="/c")
    assert cgroups.measure(ID) == ProcessUse(1.5, 2049)


def test_containers_of_another_machine_are_not_searched_for_again_and_again() -> None:
    searches = []

    def list_folders(root: str) -> list[str]:
        searches.append(root)
        return []

    cgroups = ContainerCgroups(lambda path: b"", list_folders)
    assert [cgroups.measure(ID) for _ in range(20)] == [None] * 20
    assert len(searches) == processes._MAX_SEARCHES
