"""systemd units: those that a command starts, and the content of unit files. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from batchyard.doctor.shell.files import File, FileSystem
from batchyard.doctor.shell.wrappers import program_name

#: verbs of systemctl and service that start a unit
START_VERBS = frozenset(
    "start restart try-restart condrestart reload-or-restart reload-or-try-restart "
    "try-reload-or-restart force-reload isolate".split()
)
#: verbs that start a unit with the option --now
START_VERBS_NOW = frozenset({"enable", "reenable", "preset", "unmask"})
#: units that wait for the end of the user data, and are started at every boot
LATE_UNITS = frozenset(
    "ecs.service cloud-final.service cloud-init.target multi-user.target default.target "
    "graphical.target".split()
)
#: folders of unit files
FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
)

_VALUE_OPTIONS = frozenset(
    "-t --type -p --property -H --host -M --machine -n --lines -o --output -s --signal --root "
    "--job-mode --kill-who --state --what --when --image".split()
)
#: options for the systemd of another system, or of a user
_OTHER_SYSTEMD = re.compile(r"--(?:user|global|root|image|host|machine)(?:=.*)?|-[HM].*")
_INIT_SCRIPT = re.compile(r"(?:/etc)?/(?:rc\.d/)?init\.d/([\w.@-]+)")
_SETTING = re.compile(
    r"[ \t]*(Type|After|Exec(?:Start|StartPre|StartPost|Condition))[ \t]*=[ \t]*(.*)"
)
#: types of units: `systemctl start` waits until the program has ended, or is ready
_AWAITED_TYPES = frozenset({"oneshot", "forking", "notify", "notify-reload", "dbus"})


@dataclass(frozen=True, slots=True)
class Unit:
    name: str
    #: the first unit of its After= that waits for the end of the user data; empty for none
    late: str
    #: command, its line, and whether a start of the unit waits for the command
    commands: tuple[tuple[str, int, bool], ...]


def find_started(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the units that the command starts or restarts."""
    return find_units(words, START_VERBS, START_VERBS_NOW)


def waits(words: tuple[str, ...]) -> bool:
    """Return whether a command that starts a unit waits for it."""
    return not {"--no-block", "--no-wait"} & set(words)


def find_units(
    words: tuple[str, ...], verbs: frozenset[str], verbs_now: frozenset[str]
) -> tuple[str, ...]:
    """Return the units to which the command applies one of the verbs.

    ``verbs_now`` count only with the option --now.
    """
    if not words:
        return ()
    if program_name(words[0]) == "systemctl":
        return _systemctl_units(words[1:], verbs, verbs_now)
    names, verb = _service_and_verb(words)
    return tuple(names) if verbs.intersection(verb) else ()


def _service_and_verb(words: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the service and the verb of a command of SysV init or upstart, each at most one."""
    program = program_name(words[0])
    operands = [word for word in words[1:] if not word.startswith("-")]
    if init_script := _INIT_SCRIPT.fullmatch(words[0]):
        return [init_script[1]], list(words[1:2])
    if program in ("service", "rc-service", "invoke-rc.d"):
        return operands[:1], operands[1:2]
    if program == "initctl":
        return operands[1:2], operands[:1]
    if program in ("start", "restart", "stop"):  # of upstart
        return operands[:1], [program]
    return [], []


def _systemctl_units(
    words: tuple[str, ...], verbs: frozenset[str], verbs_now: frozenset[str]
) -> tuple[str, ...]:
    operands: list[str] = []
    options: set[str] = set()
    at = 0
    while at < len(words):
        word = words[at]
        if word.startswith("-") and word != "--":
            options.add(word)
            at += 2 if word in _VALUE_OPTIONS else 1
        else:
            operands.append(word)
            at += 1
    if not operands or any(map(_OTHER_SYSTEMD.fullmatch, options)):
        return ()
    verb, names = operands[0], operands[1:]
    is_applied = verb in verbs or (verb in verbs_now and "--now" in options)
    return tuple(names) if is_applied else ()


def find(name: str, files: FileSystem) -> Unit | None:
    """Return the unit with this name whose file a script wrote."""
    name = name if "." in name else f"{name}.service"
    if not name.endswith(".service") or "/" in name:
        return None
    paths = (f"{folder}/{name}" for folder in FOLDERS)
    path = next((path for path in paths if path in files.files), None)
    return _parse(name, files.files[path]) if path is not None else None


def _parse(name: str, file: File) -> Unit:
    kind, late = "simple", ""
    commands: list[tuple[str, str, int]] = []
    for number, line in enumerate(file.content.split("\n")):
        match = _SETTING.fullmatch(line.rstrip("\r"))
        if not match:
            continue
        setting, value = match[1], match[2].strip()
        if setting == "Type":
            kind = value
        elif setting == "After":
            late = late or _first_late(value.split(), name)
        elif command := value.lstrip("-@+!:"):
            commands.append((setting, command, file.line + number))
    awaited = tuple(
        (command, line, setting != "ExecStart" or kind in _AWAITED_TYPES)
        for setting, command, line in commands
    )
    return Unit(name, late, awaited)


def _first_late(names: list[str], unit: str) -> str:
    return next((name for name in names if name in LATE_UNITS and name != unit), "")
