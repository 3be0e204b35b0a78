"""Which commands start or restart a service and wait for it. Pure."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from batchyard.doctor.shell import units
from batchyard.doctor.shell.wrappers import base

#: units that are ordered after cloud-init, which runs the user data
WATCHED = ("ecs", "docker")
#: these wait for all that they hold, the watched ones among them
TARGETS = ("multi-user.target", "default.target", "graphical.target")

_STOPS = frozenset({"stop", "disable", "mask", "kill"})
#: signals that end nothing: reload, report, child's end and the like
_HARMLESS_SIGNAL = re.compile(
    r"(?:-s|--signal)?[= ]?(?:SIG)?(?:HUP|USR1|USR2|WINCH|CONT|CHLD|1|10|12|18|28|0)", re.IGNORECASE
)


def started(words: tuple[str, ...]) -> tuple[str, ...]:
    """The watched services that the command starts or restarts, and waits for."""
    return begun(words) if units.waits(words) else ()


def begun(words: tuple[str, ...]) -> tuple[str, ...]:
    """The same, whether it waits or not."""
    return _watched(units.begun(words))


def stopped(words: tuple[str, ...]) -> tuple[str, ...]:
    """The watched services that the command stops, disables or masks."""
    return () if _only_signals(words) else _watched(units.named(words, _STOPS, frozenset()))


def _only_signals(words: tuple[str, ...]) -> bool:
    """`systemctl kill -s HUP docker` has it read its settings again."""
    pairs = zip(words, (*words[1:], ""), strict=False)
    given = [
        f"{a} {b}" if a in ("-s", "--signal") else a
        for a, b in pairs
        if a.startswith(("-s", "--signal"))
    ]
    return "kill" in words and any(map(_HARMLESS_SIGNAL.fullmatch, given))


def _watched(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(service for name in names for service in watched(name)))


def watched(unit: str) -> tuple[str, ...]:
    """`ecs`, `docker.service`, `ecs*`; nothing for any other unit."""
    if unit in TARGETS:
        return (unit,)
    name = unit.removesuffix(".service")
    return (
        tuple(service for service in WATCHED if fnmatchcase(service, name))
        if name.strip("*?")
        else ()
    )


def asks_agent(words: tuple[str, ...]) -> bool:
    """Whether the command asks if the ECS agent is there."""
    program = base(words[0]) if words else ""
    if program in ("curl", "wget", "nc", "ncat", "http"):
        return any("51678" in word for word in words)
    if program == "systemctl":
        return any(word in ("is-active", "status") for word in words) and any(
            watched(w) == ("ecs",) for w in words
        )
    if program == "service":
        return words[1:3] == ("ecs", "status")
    if program in ("docker", "pgrep", "pidof", "grep"):
        return any("ecs-agent" in word or "amazon-ecs" in word for word in words)
    if program in ("[", "[[", "test"):
        return any("/var/log/ecs/ecs-agent" in w or "/var/lib/ecs/data" in w for w in words)
    return False


def waits_for_boot(words: tuple[str, ...]) -> bool:
    """Whether the command returns only when cloud-init, or the boot, has ended."""
    program = base(words[0]) if words else ""
    if program == "cloud-init":
        return words[1:2] == ("status",) and bool({"--wait", "-w", "-wl", "-lw"} & set(words))
    return program == "systemctl" and "is-system-running" in words and "--wait" in words


def asks_boot(words: tuple[str, ...]) -> bool:
    """Whether the command asks if cloud-init has ended."""
    program = base(words[0]) if words else ""
    if program in ("[", "[[", "test", "ls", "stat"):
        return any(
            word.startswith("/var/lib/cloud/") and word.endswith("/boot-finished") for word in words
        )
    if program == "systemctl":
        return "is-active" in words and any(
            word.startswith(("cloud-final", "cloud-init.target")) for word in words
        )
    return program == "cloud-init" and words[1:2] == ("status",)
