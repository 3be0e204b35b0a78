"""systemd jobs that wait on each other, by name. Pure.

A job waits for the jobs of the units that its own is ordered after. The user data runs inside one of those, as a
process that may itself wait: `systemctl start X` ends when the job of X does. Where that closes a circle, nothing ever
goes on.
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from batchyard.doctor.host.facts import Job, Process, Unit

#: the units that run what the user wrote
RUNNERS = (
    "cloud-final.service",
    "cloud-init.service",
    "cloud-config.service",
    "cloud-init-local.service",
)
_VERBS = frozenset(
    {"start", "restart", "try-restart", "reload-or-restart", "condrestart", "enable", "isolate"}
)


@dataclass(frozen=True, slots=True)
class Deadlock:
    #: what waits
    unit: str
    #: for whom, step by step; the last is the one that runs the process
    path: tuple[str, ...]
    process: Process


def find(
    jobs: Sequence[Job], units: Sequence[Unit], processes: Sequence[Process]
) -> list[Deadlock]:
    after = {unit.name: unit.after for unit in units}
    pending = {job.unit for job in jobs}
    running = {job.unit for job in jobs if job.state == "running"}
    running |= {unit.name for unit in units if unit.active == "activating" and unit.name in RUNNERS}
    found = []
    for process in processes:
        for name in waited_for(process.command):
            if not any(job.unit == name and job.state == "waiting" for job in jobs):
                continue
            path = _path(name, after, pending | running, running)
            if path:
                found.append(Deadlock(name, path, process))
    return found


def waited_for(command: str) -> tuple[str, ...]:
    """The units for whose jobs this process waits."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    names = [word.rsplit("/", 1)[-1] for word in words]
    if "--no-block" in words or not words:
        return ()
    if "systemctl" in names[:3]:
        rest = [word for word in words[names.index("systemctl") + 1 :] if not word.startswith("-")]
        return tuple(map(_unit, rest[1:])) if rest and rest[0] in _VERBS else ()
    if "service" in names[:3]:
        rest = words[names.index("service") + 1 :]
        return (_unit(rest[0]),) if len(rest) > 1 and rest[1] in _VERBS else ()
    return ()


def _unit(name: str) -> str:
    return name if "." in name else f"{name}.service"


def _path(
    start: str, after: dict[str, tuple[str, ...]], pending: set[str], running: set[str]
) -> tuple[str, ...]:
    """From a waiting unit to one that runs the user's script, over units that have jobs; the shortest."""
    seen = {start}
    queue: deque[tuple[str, ...]] = deque([(start,)])
    while queue:
        path = queue.popleft()
        for name in after.get(path[-1], ()):
            if name in seen or name not in pending:
                continue
            if name in running and name in RUNNERS:
                return (*path, name)
            seen.add(name)
            queue.append((*path, name))
    return ()
