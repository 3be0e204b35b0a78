"""Find systemd jobs that wait for each other.

A systemd job waits for the jobs of the units that its own unit is ordered after. User data runs
as a process of such a unit, and the process may wait, too: `systemctl start X` ends when the job
of X ends, and `until docker info` when Docker runs (``userdata.waiting``). Where these waits form a
circle, none of them ever ends.
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from batchyard.doctor.host.facts import BootScript, Job, Process, Unit
from batchyard.doctor.shell.interpreters import other_interpreter
from batchyard.doctor.shell.session import Session
from batchyard.doctor.shell.units import find_started, waits
from batchyard.doctor.shell.wrappers import program_name
from batchyard.doctor.userdata.waiting import Target, Wait, find_waits, waits_for_boot

#: the units that run the user's scripts
RUNNERS = (
    "cloud-final.service",
    "cloud-init.service",
    "cloud-config.service",
    "cloud-init-local.service",
)
#: programs that wait for a unit
_PROGRAMS = ("systemctl", "service", "cloud-init")


@dataclass(frozen=True, slots=True)
class Deadlock:
    #: the unit whose job waits
    unit: str
    #: from that unit to the unit that runs the process, each waiting for the next
    path: tuple[str, ...]
    #: the process that waits for the unit
    process: Process
    #: of a script that waits in a loop: its line and the command that asks; empty for others
    question: str = ""


def find_deadlocks(
    jobs: Sequence[Job],
    units: Sequence[Unit],
    processes: Sequence[Process],
    scripts: Sequence[BootScript] = (),
) -> list[Deadlock]:
    """Return the waits of processes, and of the scripts that they run, that cannot end."""
    graph = _Graph(jobs, units)
    deadlocks = [
        Deadlock(unit, path, process)
        for process in processes
        for unit in units_waited_for(process.command)
        if (path := graph.find_path_to_runner(unit))
    ]
    by_pid = {process.pid: process for process in processes}
    for script in scripts:
        process = by_pid.get(script.pid, Process(script.pid, 0, script.path))
        for wait in _find_waits(script):
            unit = wait.target.value
            path = graph.find_path_to_runner(unit)
            if path:
                words = " ".join(wait.command.words)
                question = f"{script.path}:{wait.line} waits in a loop: `{words}`"
                deadlocks.append(Deadlock(unit, path, process, question))
    return deadlocks


def _find_waits(script: BootScript) -> list[Wait]:
    """Return the loops of a script that wait; `systemctl start` is a process of its own."""
    if other_interpreter(script.script):
        return []
    session = Session({})
    session.run(script.script)
    waits = find_waits(session.trace.commands, session.trace.loops)
    return [wait for wait in waits if wait.is_loop]


def units_waited_for(command: str) -> tuple[str, ...]:
    """Return the units whose jobs a process with this command line waits for."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    # The program may follow its interpreter: `/bin/sh /usr/sbin/service ecs restart`.
    programs = [program_name(word) for word in words[:3]]
    start = next((programs.index(name) for name in _PROGRAMS if name in programs), None)
    if start is None:
        return ()
    arguments = tuple(words[start:])
    if waits_for_boot(arguments):
        return (Target.BOOT.value,)
    if not waits(arguments):
        return ()
    return tuple(map(_unit_name, find_started(arguments)))


def _unit_name(name: str) -> str:
    return name if "." in name else f"{name}.service"


class _Graph:
    """Which unit waits for which."""

    def __init__(self, jobs: Sequence[Job], units: Sequence[Unit]) -> None:
        self._ordered_after = {unit.name: unit.after for unit in units}
        self._running = {job.unit for job in jobs if job.state == "running"} | {
            unit.name for unit in units if unit.active == "activating" and unit.name in RUNNERS
        }
        self._waiting = {job.unit for job in jobs if job.state == "waiting"}
        self._pending = {job.unit for job in jobs} | self._running

    def find_path_to_runner(self, start: str) -> tuple[str, ...]:
        """Return the shortest path over units with jobs to a running runner; empty without one.

        The path begins at a unit whose job waits, or at the runner itself.
        """
        if start in RUNNERS and start in self._running:
            return (start,)
        if start not in self._waiting:
            return ()
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
