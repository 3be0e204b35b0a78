"""Which units a command starts, and what the files of units say. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from batchyard.doctor.shell.disk import Disk, File
from batchyard.doctor.shell.wrappers import base

STARTS = frozenset(
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
STARTS_NOW = frozenset({"enable", "reenable", "preset", "unmask"})
#: what waits for the end of the user data, and is about to be started at every boot
LATE = frozenset(
    {
        "ecs.service",
        "cloud-final.service",
        "cloud-init.target",
        "multi-user.target",
        "default.target",
    }
    | {"graphical.target"}
)
FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
)

_VALUE_OPTIONS = frozenset(
    {
        "-t",
        "--type",
        "-p",
        "--property",
        "-H",
        "--host",
        "-M",
        "--machine",
        "-n",
        "--lines",
        "-o",
        "--output",
    }
    | {
        "-s",
        "--signal",
        "--root",
        "--job-mode",
        "--kill-who",
        "--state",
        "--what",
        "--when",
        "--image",
    }
)
#: the systemd of another system, or of a user
_ELSEWHERE = re.compile(r"--(?:user|global|root|image|host|machine)(?:=.*)?|-[HM].*")
_INIT_SCRIPT = re.compile(r"(?:/etc)?/(?:rc\.d/)?init\.d/([\w.@-]+)")
_SETTING = re.compile(
    r"[ \t]*(Type|After|Exec(?:Start|StartPre|StartPost|Condition))[ \t]*=[ \t]*(.*)"
)
#: `systemctl start` waits until their main program has ended, or said that it is ready
_WAITED_FOR = frozenset({"oneshot", "forking", "notify", "notify-reload", "dbus"})


@dataclass(frozen=True, slots=True)
class Unit:
    name: str
    #: the first of its After= that waits for the end of the user data
    late: str
    #: command, its line, and whether who starts the unit waits for it
    commands: tuple[tuple[str, int, bool], ...]


def begun(words: tuple[str, ...]) -> tuple[str, ...]:
    """The units that the command starts or restarts."""
    return named(words, STARTS, STARTS_NOW)


def waits(words: tuple[str, ...]) -> bool:
    return not {"--no-block", "--no-wait"} & set(words)


def named(
    words: tuple[str, ...], verbs: frozenset[str], verbs_now: frozenset[str]
) -> tuple[str, ...]:
    """The units to which the command does one of these."""
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
    return tuple(names) if set(actions) & verbs else ()


def _systemctl(
    words: tuple[str, ...], verbs: frozenset[str], verbs_now: frozenset[str]
) -> tuple[str, ...]:
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
    if not plain or any(map(_ELSEWHERE.fullmatch, options)):
        return ()
    verb, units = plain[0], plain[1:]
    return tuple(units) if verb in verbs or (verb in verbs_now and "--now" in options) else ()


def find(name: str, disk: Disk) -> Unit | None:
    """A unit whose file a script wrote."""
    name = name if "." in name else f"{name}.service"
    if not name.endswith(".service") or "/" in name:
        return None
    file = next(
        (disk.files[path] for folder in FOLDERS if (path := f"{folder}/{name}") in disk.files), None
    )
    return _read(name, file) if file is not None else None


def _read(name: str, file: File) -> Unit:
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
            late = late or next(
                (unit for unit in value.split() if unit in LATE and unit != name), ""
            )
        else:
            commands.append((setting, value.lstrip("-@+!:"), file.line + number))
    return Unit(
        name,
        late,
        tuple(
            (command, line, setting != "ExecStart" or kind in _WAITED_FOR)
            for setting, command, line in commands
            if command
        ),
    )
