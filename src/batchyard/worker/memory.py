"""How often the kernel has killed something in this container for memory. Reads /proc and /sys only."""

from __future__ import annotations

from pathlib import Path


def oom_kills(root: Path = Path("/")) -> int:
    """The count of this cgroup, in version 2 or 1; 0 where the kernel does not say."""
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
    for line in memberships:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            files.append(mounts / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            files.append(mounts / "memory" / path.lstrip("/") / "memory.oom_control")
    # A container sees its own cgroup as the root of what is mounted, whatever its path is outside.
    return [*files, mounts / "memory.events", mounts / "memory/memory.oom_control"]
