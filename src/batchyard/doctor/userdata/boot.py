"""Follow user data through a boot: the commands of all its parts, in cloud-init's order. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from batchyard.doctor.shell import interpreters
from batchyard.doctor.shell.files import File
from batchyard.doctor.shell.session import JOB, Session
from batchyard.doctor.shell.trace import CommandRun, FileWrite, Loop
from batchyard.doctor.shell.wrappers import quote
from batchyard.doctor.userdata import cloud_config
from batchyard.doctor.userdata.parts import (
    BOOTHOOK,
    CLOUD_CONFIG,
    OTHER,
    OTHER_SCRIPT,
    SHELL,
    Part,
    UserData,
)
from batchyard.yaml_positions import Node

#: cloud-init runs the files in these folders at every boot, or once
_RUN_BY_CLOUD_INIT = re.compile(r"/var/lib/cloud/scripts/(?:per-boot|per-instance|per-once)/.+")

#: step of a command that waits, and the jobs that it waits for; None: any
_Wait = tuple[int, frozenset[int] | None]


@dataclass(slots=True)
class Boot:
    commands: list[CommandRun] = field(default_factory=list)
    writes: list[FileWrite] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    #: names of packages that cloud-config installs, with their lines
    packages: list[tuple[str, int]] = field(default_factory=list)
    #: line, and what cannot be read in a part
    problems: list[tuple[int, str]] = field(default_factory=list)
    #: line and description of each script that is not followed, like "runs a script for perl"
    not_followed: list[tuple[int, str]] = field(default_factory=list)

    def add(self, session: Session) -> None:
        """Add the trace of a shell.

        A background job that the shell waits for later counts as one in the foreground.
        """
        waits = _find_waits(session)
        first_step = len(self.commands)
        for command in session.trace.commands:
            is_background = command.is_background and not _is_awaited(command, waits)
            step = first_step + command.step
            self.commands.append(replace(command, step=step, is_background=is_background))
        self.writes += session.trace.writes
        self.loops += [_bring_to_front(loop, waits) for loop in session.trace.loops]
        self.not_followed += session.trace.not_followed


def follow_boot(data: UserData) -> Boot:
    """Follow files, boot commands and hooks, run commands, scripts, then cloud-init's folders."""
    boot = Boot()
    files: dict[str, File] = {}
    boot.not_followed += [
        (part.first_line, "includes files from elsewhere")
        for part in data.parts
        if part.kind == OTHER and part.text.lstrip().lower().startswith("#include")
    ]
    configs = [
        (part, cloud_config.read(part, boot.problems))
        for part in data.parts
        if part.kind == CLOUD_CONFIG
    ]
    for part, config in configs:
        _write_files(part, config, files, boot)
    for part, config in configs:
        _run_commands(part, config.get("bootcmd"), files, boot)
    _run_scripts(data, BOOTHOOK, files, boot)
    for part, config in configs:
        _run_commands(part, config.get("runcmd"), files, boot)
        boot.packages += cloud_config.packages(part, config)
        _add_power_state(part, config, boot)
    _run_scripts(data, SHELL, files, boot)
    _run_scripts(data, OTHER_SCRIPT, files, boot)
    session = Session(files)
    for path in [path for path in files if _RUN_BY_CLOUD_INIT.fullmatch(path)]:
        session.run_path(path)
    boot.add(session)
    return boot


def _run_scripts(data: UserData, kind: str, files: dict[str, File], boot: Boot) -> None:
    for part in data.parts:
        if part.kind != kind:
            continue
        if kind == OTHER_SCRIPT:
            interpreter = interpreters.other_interpreter(part.text) or "another program"
            boot.not_followed.append((part.first_line, interpreters.describe(interpreter)))
            continue
        session = Session(files)
        session.run(part.text, part.first_line)
        boot.add(session)


def _run_commands(part: Part, commands: Node | None, files: dict[str, File], boot: Boot) -> None:
    """Follow `bootcmd` or `runcmd`: each command is a shell text, or a list of words."""
    session = Session(files)
    for command in commands.items if commands else ():
        text = command.text
        if text is None:
            text = " ".join(quote(word.text or "") for word in command.items)
        session.run(text, part.line_of(command.text_line))
    boot.add(session)


def _write_files(part: Part, config: Node, files: dict[str, File], boot: Boot) -> None:
    for write in cloud_config.file_writes(part, config):
        old_file = files.get(write.path) if write.is_append else None
        old_content = old_file.content if old_file is not None else ""
        files[write.path] = File(old_content + (write.content or ""), write.line)
        boot.writes.append(write)


def _add_power_state(part: Part, config: Node, boot: Boot) -> None:
    """Add the command reboot, poweroff or halt that `power_state` runs at the end."""
    power_state = config.get("power_state")
    mode = power_state.get("mode") if power_state else None
    condition = power_state.get("condition") if power_state else None
    is_never = condition is not None and (condition.text or "").lower() in ("false", "no", "off")
    if mode is not None and mode.text and not is_never:
        line = part.line_of(mode.line)
        boot.commands.append(CommandRun((mode.text,), line, step=len(boot.commands)))


# -- waits for background jobs --------------------------------------------------------------------


def _find_waits(session: Session) -> list[_Wait]:
    """Find `wait`, and endless loops on `kill -0 JOB`, which wait for a job as well."""
    waits = [
        (command.step, _jobs_of(command.words[1:]))
        for command in session.trace.commands
        if command.words[0] == "wait" and _is_in_foreground(command)
    ]
    for loop in session.trace.loops:
        waits += [
            (command.step, _jobs_of(command.words[2:]))
            for command in loop.condition
            if command.words[:2] == ("kill", "-0")
            and not loop.is_bounded
            and _is_in_foreground(command)
        ]
    return waits


def _is_awaited(command: CommandRun, waits: list[_Wait]) -> bool:
    return any(
        step > command.step and (jobs is None or command.job in jobs) for step, jobs in waits
    )


def _bring_to_front(loop: Loop, waits: list[_Wait]) -> Loop:
    """Return the loop; in the foreground if it is a background job that is awaited."""
    first = next(iter((*loop.condition, *loop.body)), None)
    if first is None or first.is_detached or not first.is_background:
        return loop
    return replace(loop, is_background=False) if _is_awaited(first, waits) else loop


def _is_in_foreground(command: CommandRun) -> bool:
    return not command.is_background and not command.is_detached


def _jobs_of(words: tuple[str, ...]) -> frozenset[int] | None:
    """Return the numbers of the jobs that the words name; None if it may be any job."""
    names = [word for word in words if not word.startswith("-")]
    if not names or not all(name.startswith(JOB) for name in names):
        return None
    numbers = [name.removeprefix(JOB) for name in names]
    return frozenset(int(number) for number in numbers if number.isdecimal())
