"""Which commands start or restart a service and wait for it. Pure."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from batchyard.doctor.shell.wrappers import base

#: units that are ordered after cloud-init, which runs the user data
WATCHED = ("ecs", "docker")
#: these wait for all that they hold, the watched ones among them
TARGETS = ("multi-user.target", "default.target", "graphical.target")

_STARTS = frozenset(
    {
        "start",
        "restart",
        "try-restart",
        "condrestart",
        "reload-or-restart",
        "reload-or-try-restart",
        "try-reload-or-restart",
        "force-reload",
        "isolate",
    }
)
_STARTS_NOW = frozenset({"enable", "reenable", "preset", "unmask"})
_STOPS = frozenset({"stop", "disable", "mask", "kill"})
_VALUE_OPTIONS = frozenset(
    {"-t", "--type", "-p", "--property", "-H", "--host", "-M", "--machine", "-n", "--lines", "-o", "--output"}
    | {"-s", "--signal", "--root", "--job-mode", "--kill-who", "--state", "--what", "--when", "--image"}
)
_INIT_SCRIPT = re.compile(r"(?:/etc)?/(?:rc\.d/)?init\.d/([\w.@-]+)")


def started(words: tuple[str, ...]) -> tuple[str, ...]:
    """The watched services that the command starts or restarts, and waits for."""
    return () if {"--no-block", "--no-wait"} & set(words) else begun(words)


def begun(words: tuple[str, ...]) -> tuple[str, ...]:
    """The same, whether it waits or not."""
    return _named(words, _STARTS, _STARTS_NOW)


def stopped(words: tuple[str, ...]) -> tuple[str, ...]:
    """The watched services that the command stops, disables or masks."""
    return _named(words, _STOPS, frozenset())


def _named(words: tuple[str, ...], verbs: frozenset[str], verbs_now: frozenset[str]) -> tuple[str, ...]:
    if not words:
        return ()
    program = base(words[0])
    init_script = _INIT_SCRIPT.fullmatch(words[0])
    if program == "systemctl":
        return _systemctl(words[1:], verbs, verbs_now)
    if init_script:
        names, actions = [init_script[1]], words[1:2]
    elif program in ("service", "rc-service", "invoke-rc.d"):
        rest = [word for word in words[1:] if not word.startswith("-")]
        names, actions = rest[:1], tuple(rest[1:2])
    elif program == "initctl":
        rest = [word for word in words[1:] if not word.startswith("-")]
        names, actions = rest[1:2], tuple(rest[:1])
    elif program in ("start", "restart", "stop"):  # upstart's own
        names, actions = [word for word in words[1:] if not word.startswith("-")][:1], (program,)
    else:
        return ()
    if not set(actions) & verbs:
        return ()
    return tuple(service for name in names for service in watched(name))


def _systemctl(words: tuple[str, ...], verbs: frozenset[str], verbs_now: frozenset[str]) -> tuple[str, ...]:
    plain: list[str] = []
    options: set[str] = set()
    at = 0
    while at < len(words):
        word = words[at]
        if word.startswith("-") and word != "--":
            options.add(word)
            at += 2 if word in _VALUE_OPTIONS else 1
        else:
            plain.append(word)
            at += 1
    if not plain or "--user" in options:
        return ()
    verb, units = plain[0], plain[1:]
    if verb not in verbs and not (verb in verbs_now and "--now" in options):
        return ()
    return tuple(dict.fromkeys(service for unit in units for service in watched(unit)))


def watched(unit: str) -> tuple[str, ...]:
    """`ecs`, `docker.service`, `ecs*`; nothing for any other unit."""
    if unit in TARGETS:
        return (unit,)
    name = unit.removesuffix(".service")
    return tuple(service for service in WATCHED if fnmatchcase(service, name)) if name.strip("*?") else ()


def asks_agent(words: tuple[str, ...]) -> bool:
    """Whether the command asks if the ECS agent is there."""
    program = base(words[0]) if words else ""
    if program in ("curl", "wget", "nc", "ncat", "http"):
        return any("51678" in word for word in words)
    if program == "systemctl":
        return any(word in ("is-active", "status") for word in words) and any(watched(w) == ("ecs",) for w in words)
    if program == "service":
        return words[1:3] == ("ecs", "status")
    if program in ("docker", "pgrep", "pidof", "grep"):
        return any("ecs-agent" in word or "amazon-ecs" in word for word in words)
    if program in ("[", "[[", "test"):
        return any("/var/log/ecs/ecs-agent" in w or "/var/lib/ecs/data" in w for w in words)
    return False
