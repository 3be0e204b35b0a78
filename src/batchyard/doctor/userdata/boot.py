"""User data -> what the node would do with it, all parts together. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field, replace

from batchyard.doctor.shell.disk import File
from batchyard.doctor.shell.follow import Session
from batchyard.doctor.shell.trace import Looped, Ran, Wrote
from batchyard.doctor.userdata.parts import BOOTHOOK, CLOUD_CONFIG, OTHER_SCRIPT, SHELL, Part, UserData
from batchyard.doctor.yaml_tree import Node, NotReadable, parse

#: cloud-init runs what lies here at every boot, or once
_RUN_BY_CLOUD_INIT = re.compile(r"/var/lib/cloud/scripts/(?:per-boot|per-instance|per-once)/.+")
_CALLS = re.compile(
    r"(?:\b(?:systemctl|service|initctl|invoke-rc\.d)|/sbin/(?:re)?start|/etc/init\.d/)\b.*"
    r"|\b(?:re)?start (?:ecs|docker)\b.*"
)
#: of Jinja and of Terraform: lines that decide what is there, and values
_DIRECTIVE = re.compile(r"(?m)^[ \t]*(?:\{%.*%\}|%\{.*\}|\{#.*#\})[ \t]*$|\{%[^%\n]*%\}")
_FILLED_IN = re.compile(r"\{\{[^{}\n]*\}\}|\$\{[^{}\n]*\}")
_PUNCTUATION = re.compile(r"[\[\]()'\",;]+")


@dataclass(slots=True)
class Boot:
    ran: list[Ran] = field(default_factory=list)
    wrote: list[Wrote] = field(default_factory=list)
    loops: list[Looped] = field(default_factory=list)
    #: names of packages that cloud-config installs, with their lines
    packages: list[tuple[str, int]] = field(default_factory=list)
    #: line, and what cannot be read in a part
    problems: list[tuple[int, str]] = field(default_factory=list)


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
    waits = [ran.step for ran in session.trace.ran if ran.words[:1] == ("wait",) and not ran.is_background]
    last_wait = max(waits, default=-1)
    before = len(found.ran)
    found.ran += [
        replace(ran, step=before + ran.step, is_background=ran.is_background and ran.step > last_wait)
        for ran in session.trace.ran
    ]
    found.wrote += session.trace.wrote
    found.loops += session.trace.loops


def _run_script(part: Part, files: dict[str, File], found: Boot) -> None:
    if part.kind == OTHER_SCRIPT:
        _add_calls(part, found)
        return
    session = Session(files)
    session.run(part.text, part.first_line)
    take(session, found)


def _add_calls(part: Part, found: Boot) -> None:
    """Commands in a script of another language: by their looks, line by line."""
    for number, line in enumerate(part.text.split("\n")):
        match = _CALLS.search(line[:2000])
        if match and not line.lstrip().startswith("#"):
            words = tuple(_PUNCTUATION.sub(" ", match[0]).split())
            found.ran.append(Ran(words, part.first_line + number, is_detached="Popen" in line, step=len(found.ran)))


# -- cloud-config ---------------------------------------------------------------------------------------------


def _config(part: Part, found: Boot) -> Node:
    try:
        return parse(part.text)
    except NotReadable as exc:
        problem = exc
    # A template that cloud-init or Terraform fills in is often YAML only afterwards.
    try:
        return parse(_FILLED_IN.sub("__value__", _DIRECTIVE.sub("", part.text)))
    except NotReadable:
        line = part.first_line + max(0, problem.line - 1)
        found.problems.append((line, f"the cloud-config is not YAML: {problem.what}"))
        _add_calls(part, found)
        return Node({})


def _run_list(part: Part, commands: Node | None, files: dict[str, File], found: Boot) -> None:
    session = Session(files)
    for command in commands.items() if commands else ():
        line = part.first_line + max(command.text_line, 1) - 1
        if command.text is not None:
            session.run(command.text, line)
        else:
            words = [item.text or "" for item in command.items()]
            session.run(" ".join("'" + word.replace("'", "'\\''") + "'" for word in words), line)
    take(session, found)


def _write_files(part: Part, config: Node, files: dict[str, File], found: Boot) -> None:
    entries = config.get("write_files")
    for entry in entries.items() if entries else ():
        path, content = entry.get("path"), entry.get("content")
        if path is None or path.text is None:
            continue
        text = _decoded((content.text or "") if content else "", entry)
        line = part.first_line + max((content or path).text_line, 1) - 1
        append = entry.get("append")
        is_append = append is not None and (append.text or "").lower() in ("true", "yes", "on", "1")
        before = files[path.text].content if is_append and path.text in files else ""
        files[path.text] = File(before + text, line)
        found.wrote.append(Wrote(path.text, text, is_append, line))


def _decoded(text: str, entry: Node) -> str:
    encoding = entry.get("encoding")
    if encoding is None or ("b64" not in (encoding.text or "") and "base64" not in (encoding.text or "")):
        return text
    try:
        return base64.b64decode("".join(text.split())).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return ""


def _rest(part: Part, config: Node, found: Boot) -> None:
    packages = config.get("packages")
    for package in packages.items() if packages else ():
        name = package.text or (package.items()[0].text if package.items() else None)
        if name:
            found.packages.append((name, part.first_line + max(package.line, 1) - 1))
    power = config.get("power_state")
    mode = power.get("mode") if power else None
    if mode is not None and mode.text:
        found.ran.append(Ran((mode.text,), part.first_line + max(mode.line, 1) - 1, step=len(found.ran)))
