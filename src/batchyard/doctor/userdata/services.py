"""Commands that start or stop the ECS agent or Docker. Pure."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from batchyard.doctor.shell import units

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
