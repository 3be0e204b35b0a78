"""Count the processes of this container that the kernel has killed because of their memory use."""

from __future__ import annotations

from pathlib import Path


def count_oom_kills(root: Path = Path("/")) -> int:
    """Return the count of this cgroup (version 2 or 1); 0 if the kernel does not show it."""
    for path in _event_files(root):
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.isdigit():
                return int(count)
    return 0


def _event_files(root: Path) -> list[Path]:
    mounts = root / "sys/fs/cgroup"
    try:
        memberships = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        memberships = []
    files = []
    for membership in memberships:
        controllers, _, path = membership.partition(":")[2].partition(":")
        if not controllers:
            files.append(mounts / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            files.append(mounts / "memory" / path.lstrip("/") / "memory.oom_control")
    # A container can see its own cgroup as the root of the mount, whatever its path outside is.
    return [*files, mounts / "memory.events", mounts / "memory/memory.oom_control"]
