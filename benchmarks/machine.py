"""Describe this machine for the tables, and read how busy it is."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def describe(slots: int) -> str:
    model = cpu_model(Path("/proc/cpuinfo").read_text())
    memory = memory_gib(Path("/proc/meminfo").read_text())
    hardware = f"{len(os.sched_getaffinity(0))} CPUs ({model}), {memory:.0f} GiB of memory"
    return (
        f"{hardware}, Linux {platform.release()}, Python {platform.python_version()}; {slots} slots"
    )


def busy_s() -> float:
    """Return the CPU seconds that the machine has spent since it started."""
    return busy_ticks(Path("/proc/stat").read_text()) / os.sysconf("SC_CLK_TCK")


def busy_ticks(stat: str) -> int:
    """Return the busy ticks of all CPUs from /proc/stat: all but idle and iowait."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(
        int, stat.split("\n", 1)[0].split()[1:9]
    )
    return user + nice + system + irq + softirq + steal


def cpu_model(cpuinfo: str) -> str:
    """Return the first model name, or the architecture: ARM machines list no model name."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return " ".join(value.replace("(R)", "").replace("(TM)", "").split())
    return platform.machine()


def memory_gib(meminfo: str) -> float:
    for line in meminfo.splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) / 1024**2
    raise ValueError("/proc/meminfo has no MemTotal line")
