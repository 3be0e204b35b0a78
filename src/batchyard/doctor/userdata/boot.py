"""User data -> what the node would do with it, all parts together. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field, replace

from batchyard.doctor.packed import MAX_UNPACKED, gunzip
from batchyard.doctor.shell import interpreters
from batchyard.doctor.shell.disk import File
from batchyard.doctor.shell.follow import JOB, Session
from batchyard.doctor.shell.trace import Looped, Ran, Wrote
from batchyard.doctor.userdata.parts import (
    BOOTHOOK,
    CLOUD_CONFIG,
    OTHER_SCRIPT,
    SHELL,
    Part,
    UserData,
)
from batchyard.doctor.yaml_tree import NotReadableError, make_mapping, parse
from batchyard.yaml_positions import Mapping, Node, Sequence

#: cloud-init runs what lies here at every boot, or once
_RUN_BY_CLOUD_INIT = re.compile(r"/var/lib/cloud/scripts/(?:per-boot|per-instance|per-once)/.+")
#: of Jinja and of Terraform: lines that decide what is there, and values
_DIRECTIVE = re.compile(r"(?m)^[ \t]*(?:\{%.*%\}|%\{.*\}|\{#.*#\})[ \t]*$|\{%[^%\n]*%\}")
_FILLED_IN = re.compile(r"\{\{[^{}\n]*\}\}|\$\{[^{}\n]*\}")


@dataclass(slots=True)
class Boot:
    ran: list[Ran] = field(default_factory=list)
    wrote: list[Wrote] = field(default_factory=list)
    loops: list[Looped] = field(default_factory=list)
    #: names of packages that cloud-config installs, with their lines
    packages: list[tuple[str, int]] = field(default_factory=list)
    #: line, and what cannot be read in a part
    problems: list[tuple[int, str]] = field(default_factory=list)
    #: line and interpreter of each script in another language
    not_followed: list[tuple[int, str]] = field(default_factory=list)


def boot(data: UserData) -> Boot:
    """In the order of a boot: files, boot commands and hooks, run commands, scripts, what was left to cloud-init."""
    found = Boot()
    files: dict[str, File] = {}
    configs = [(part, _config(part, found)) for part in data.parts if part.kind == CLOUD_CONFIG]
    for part, config in configs:
        _write_files(part, config, files, found)
    for part, config in configs:
        _run_list(part, config.get("bootcmd"), files, found)
    for kind in (BOOTHOOK, SHELL, OTHER_SCRIPT):
        if kind == SHELL:
            for part, config in configs:
                _run_list(part, config.get("runcmd"), files, found)
                _rest(part, config, found)
        for part in data.parts:
            if part.kind == kind:
                _run_script(part, files, found)
    session = Session(files)
    for path in [path for path in files if _RUN_BY_CLOUD_INIT.fullmatch(path)]:
        session.run_file(path)
    take(session, found)
    return found


def take(session: Session, found: Boot) -> None:
    """Adds what a shell did. What it left in the background and then waited for was not in the background."""
    waits = [
        (ran.step, _jobs(ran.words[1:]))
        for ran in session.trace.ran
        if ran.words[0] == "wait" and _stays(ran)
    ]
    waits += [
        (ran.step, _jobs(ran.words[2:]))
        for loop in session.trace.loops
        for ran in loop.asks
        if ran.words[:2] == ("kill", "-0") and not loop.is_counted and _stays(ran)
    ]
    before = len(found.ran)
    found.ran += [
        replace(
            ran,
            step=before + ran.step,
            is_background=ran.is_background
            and not any(
                step > ran.step and (jobs is None or ran.job in jobs) for step, jobs in waits
            ),
        )
        for ran in session.trace.ran
    ]
    found.wrote += session.trace.wrote
    found.loops += session.trace.loops
    found.not_followed += session.trace.not_followed


def _stays(ran: Ran) -> bool:
    return not ran.is_background and not ran.is_detached


def _jobs(words: tuple[str, ...]) -> frozenset[int] | None:
    """The jobs that `wait` names; None where it may be any."""
    named = [word for word in words if not word.startswith("-")]
    if not named or not all(word.startswith(JOB) for word in named):
        return None
    return frozenset(
        int(word.removeprefix(JOB)) for word in named if word.removeprefix(JOB).isdecimal()
    )


def _run_script(part: Part, files: dict[str, File], found: Boot) -> None:
    if part.kind == OTHER_SCRIPT:
        interpreter = interpreters.other_interpreter(part.text) or "another program"
        found.not_followed.append((part.first_line, interpreter))
        return
    session = Session(files)
    session.run(part.text, part.first_line)
    take(session, found)


# -- cloud-config ---------------------------------------------------------------------------------------------


def _config(part: Part, found: Boot) -> Node:
    try:
        return _patched(parse(part.text)) if part.is_patch else parse(part.text)
    except NotReadableError as exc:
        unreadable = exc
    # A template that cloud-init or Terraform fills in is often YAML only afterwards.
    try:
        return parse(_FILLED_IN.sub("__value__", _DIRECTIVE.sub("", part.text)))
    except NotReadableError:
        line = part.first_line + max(0, unreadable.line - 1)
        found.problems.append((line, f"the cloud-config is not YAML: {unreadable.problem}"))
        return Mapping(0, 0)


def _patched(patch: Node) -> Node:
    """What a JSON patch of the cloud-config adds to it, key by key."""
    config: dict[str, Node] = {}
    for change in patch.items:
        path, value, verb = change.get("path"), change.get("value"), change.get("op")
        if path is None or value is None or verb is None or verb.text not in ("add", "replace"):
            continue
        key, _, place = (path.text or "").lstrip("/").partition("/")
        if not place:
            config[key] = value
        elif re.fullmatch(r"-|\d+", place):
            before = config.get(key)
            config[key] = Sequence(value.line, 0, [*(before.items if before else ()), value])
    return make_mapping(config)


def _run_list(part: Part, commands: Node | None, files: dict[str, File], found: Boot) -> None:
    session = Session(files)
    for command in commands.items if commands else ():
        line = part.first_line + max(command.text_line, 1) - 1
        if command.text is not None:
            session.run(command.text, line)
        else:
            words = [item.text or "" for item in command.items]
            session.run(" ".join("'" + word.replace("'", "'\\''") + "'" for word in words), line)
    take(session, found)


def _write_files(part: Part, config: Node, files: dict[str, File], found: Boot) -> None:
    entries = config.get("write_files")
    left = MAX_UNPACKED
    for entry in entries.items if entries else ():
        path, content = entry.get("path"), entry.get("content")
        if path is None or path.text is None:
            continue
        text = _decoded((content.text or "") if content else "", entry, left)
        left -= len(text)
        line = part.first_line + max((content or path).text_line, 1) - 1
        append = entry.get("append")
        is_append = append is not None and (append.text or "").lower() in ("true", "yes", "on", "1")
        before = files[path.text].content if is_append and path.text in files else ""
        files[path.text] = File(before + text, line)
        found.wrote.append(Wrote(path.text, text, is_append, line))


def _decoded(text: str, entry: Node, left: int) -> str:
    """Past base64 and gzip, as cloud-init undoes them; ``left``: how long it may be."""
    content, named = entry.get("content"), entry.get("encoding")
    encoding = (named.text or "").lower() if named else ""
    is_binary = content is not None and content.tag.endswith(":binary")
    data = text.encode("utf-8", "replace")
    if is_binary:
        data = _from_base64(data)
    if "b64" in encoding or "base64" in encoding:
        data = _from_base64(data)
    if encoding.startswith("gz"):
        data = (gunzip(data) or b"")[:left] if left > 0 else b""
    return data.decode("utf-8", "replace")


def _from_base64(data: bytes) -> bytes:
    try:
        return base64.b64decode(b"".join(data.split()))
    except (binascii.Error, ValueError):
        return b""


def _rest(part: Part, config: Node, found: Boot) -> None:
    packages = config.get("packages")
    for package in packages.items if packages else ():
        name = package.text or (package.items[0].text if package.items else None)
        if name:
            found.packages.append((name, part.first_line + max(package.line, 1) - 1))
    power = config.get("power_state")
    mode = power.get("mode") if power else None
    condition = power.get("condition") if power else None
    is_never = condition is not None and (condition.text or "").lower() in ("false", "no", "off")
    if mode is not None and mode.text and not is_never:
        found.ran.append(
            Ran((mode.text,), part.first_line + max(mode.line, 1) - 1, step=len(found.ran))
        )
