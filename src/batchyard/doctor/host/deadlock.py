"""Find systemd jobs that wait for each other.

A systemd job waits for the jobs of the units that its own unit is ordered after. User data runs
as a process of such a unit, and the process may wait, too: `systemctl start X` ends when the job
of X ends. Where these waits form a circle, none of them ever ends.
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from batchyard.doctor.host.facts import Job, Process, Unit

#: the units that run the user's scripts
RUNNERS = (
    "cloud-final.service",
    "cloud-init.service",
    "cloud-config.service",
    "cloud-init-local.service",
)
#: the verbs of systemctl that wait for a job
_VERBS = frozenset(
    {"start", "restart", "try-restart", "reload-or-restart", "condrestart", "enable", "isolate"}
)


@dataclass(frozen=True, slots=True)
class Deadlock:
    #: the unit whose job waits
    unit: str
    #: from that unit to the unit that runs the process, each waiting for the next
    path: tuple[str, ...]
    #: the process that waits for the unit
    process: Process


def find_deadlocks(
    jobs: Sequence[Job], units: Sequence[Unit], processes: Sequence[Process]
) -> list[Deadlock]:
    waiting = {job.unit for job in jobs if job.state == "waiting"}
    graph = _Graph(jobs, units)
    deadlocks = []
    for process in processes:
        for unit in units_waited_for(process.command):
            path = graph.find_path_to_runner(unit) if unit in waiting else ()
            if path:
                deadlocks.append(Deadlock(unit, path, process))
    return deadlocks


def units_waited_for(command: str) -> tuple[str, ...]:
    """Return the units whose jobs a process with this command line waits for."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    if "--no-block" in words:
        return ()
    programs = [word.rsplit("/", 1)[-1] for word in words[:3]]
    if "systemctl" in programs:
        arguments = words[programs.index("systemctl") + 1 :]
        verb, *units = [word for word in arguments if not word.startswith("-")] or [""]
        return tuple(map(_unit_name, units)) if verb in _VERBS else ()
    if "service" in programs:
        unit, verb, *_ = [*words[programs.index("service") + 1 :], "", ""]
        return (_unit_name(unit),) if verb in _VERBS else ()
    return ()


def _unit_name(name: str) -> str:
    return name if "." in name else f"{name}.service"


class _Graph:
    """Which unit waits for which."""

    def __init__(self, jobs: Sequence[Job], units: Sequence[Unit]) -> None:
        self._ordered_after = {unit.name: unit.after for unit in units}
        self._running = {job.unit for job in jobs if job.state == "running"} | {
            unit.name for unit in units if unit.active == "activating" and unit.name in RUNNERS
        }
        self._pending = {job.unit for job in jobs} | self._running

    def find_path_to_runner(self, start: str) -> tuple[str, ...]:
        """Return the shortest path over units with jobs to a running runner; empty without one."""
        seen = {start}
        queue: deque[tuple[str, ...]] = deque([(start,)])
        while queue:
            path = queue.popleft()
            for name in self._ordered_after.get(path[-1], ()):
                if name in seen or name not in self._pending:
                    continue
                if name in self._running and name in RUNNERS:
                    return (*path, name)
                seen.add(name)
                queue.append((*path, name))
        return ()
