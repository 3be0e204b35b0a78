"""Commands that start, stop or ask about the ECS agent, Docker or cloud-init. Pure."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from batchyard.doctor.shell import units
from batchyard.doctor.shell.wrappers import program_name

#: services that are ordered after cloud-init, which runs the user data
WATCHED = ("ecs", "docker")
#: targets wait for all units that they want, the watched services among them
TARGETS = ("multi-user.target", "default.target", "graphical.target")

_STOP_VERBS = frozenset({"stop", "disable", "mask", "kill"})
#: signals that end nothing: reload, report, end of a child
_HARMLESS_SIGNAL = re.compile(
    r"(?:-s|--signal)?[= ]?(?:SIG)?(?:HUP|USR1|USR2|WINCH|CONT|CHLD|1|10|12|18|28|0)", re.IGNORECASE
)


def find_awaited_starts(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the watched services that the command starts or restarts, and waits for."""
    return find_starts(words) if units.waits(words) else ()


def find_starts(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the watched services that the command starts or restarts, whether it waits or not."""
    return _find_watched(units.find_started(words))


def find_stops(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the watched services that the command stops, disables or masks."""
    if _sends_harmless_signal(words):
        return ()
    return _find_watched(units.find_units(words, _STOP_VERBS, frozenset()))


def _sends_harmless_signal(words: tuple[str, ...]) -> bool:
    """Return whether the command is like `systemctl kill -s HUP docker`, which reloads settings."""
    pairs = zip(words, (*words[1:], ""), strict=False)
    signals = [
        f"{word} {next_word}" if word in ("-s", "--signal") else word
        for word, next_word in pairs
        if word.startswith(("-s", "--signal"))
    ]
    return "kill" in words and any(map(_HARMLESS_SIGNAL.fullmatch, signals))


def _find_watched(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(service for name in names for service in match_watched(name)))


def match_watched(unit: str) -> tuple[str, ...]:
    """Return the watched services for a unit such as `ecs`, `docker.service` or `ecs*`."""
    if unit in TARGETS:
        return (unit,)
    name = unit.removesuffix(".service")
    if not name.strip("*?"):
        return ()
    return tuple(service for service in WATCHED if fnmatchcase(service, name))


def _any_word_has(words: tuple[str, ...], *texts: str) -> bool:
    return any(text in word for word in words for text in texts)


def _program_of(words: tuple[str, ...]) -> str:
    return program_name(words[0]) if words else ""


def asks_agent(words: tuple[str, ...]) -> bool:
    """Return whether the command asks if the ECS agent runs."""
    program = _program_of(words)
    if program in ("curl", "wget", "nc", "ncat", "http"):
        return _any_word_has(words, "51678")
    if program == "systemctl":
        is_question = "is-active" in words or "status" in words
        return is_question and any(match_watched(word) == ("ecs",) for word in words)
    if program == "service":
        return words[1:3] == ("ecs", "status")
    if program in ("docker", "pgrep", "pidof", "grep"):
        return _any_word_has(words, "ecs-agent", "amazon-ecs")
    if program in ("[", "[[", "test"):
        return _any_word_has(words, "/var/log/ecs/ecs-agent", "/var/lib/ecs/data")
    return False


def waits_for_boot(words: tuple[str, ...]) -> bool:
    """Return whether the command ends only when cloud-init, or the boot, has ended."""
    program = _program_of(words)
    if program == "cloud-init":
        return words[1:2] == ("status",) and bool({"--wait", "-w", "-wl", "-lw"} & set(words))
    return program == "systemctl" and "is-system-running" in words and "--wait" in words


def asks_boot(words: tuple[str, ...]) -> bool:
    """Return whether the command asks if cloud-init has ended."""
    program = _program_of(words)
    if program in ("[", "[[", "test", "ls", "stat"):
        return any(
            word.startswith("/var/lib/cloud/") and word.endswith("/boot-finished") for word in words
        )
    if program == "systemctl":
        return "is-active" in words and any(
            word.startswith(("cloud-final", "cloud-init.target")) for word in words
        )
    return program == "cloud-init" and words[1:2] == ("status",)
