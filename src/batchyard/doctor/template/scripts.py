"""The scripts in a template: user data, and what cfn-init does when user data calls it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from batchyard.doctor.finding import Finding
from batchyard.doctor.shell.disk import File
from batchyard.doctor.shell.follow import Session
from batchyard.doctor.shell.trace import Wrote
from batchyard.doctor.template import nested, others
from batchyard.doctor.template.resources import NOTHING, OPEN_LINE, Lines, Resource, Template
from batchyard.doctor.userdata import examine as user_data
from batchyard.doctor.userdata.boot import Boot, take
from batchyard.yaml_positions import Node, Sequence

INIT = "AWS::CloudFormation::Init"
_OF_FORM = frozenset(kind for kind, _, _ in user_data.FORM_CHECKS)
_ABOUT_ECS = re.compile(r"(?<![a-z0-9])ecs(?![a-z0-9])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Script:
    resource: Resource
    lines: Lines
    #: batch or ecs: whose node runs it
    owner: str


#: what a script is -> what was found in it
Done = dict[tuple[str, str, Lines, str], tuple[Finding, ...]]


def examine(template: Template, followed: frozenset[str], done: Done) -> Iterator[Finding]:
    """``followed`` are nested stacks whose own templates are examined with what they are handed."""
    scripts = list(_scripts(template, followed))
    for script in scripts:
        key = (template.name, script.resource.name, script.lines, script.owner)
        if key not in done:
            done[key] = tuple(_of_script(template, script))
        yield from done[key]
    for resource in template.resources:
        caller = next(
            (script for script in scripts if _calls_init(script.lines.text, resource)), None
        )
        if caller is not None:
            yield from _of_init(template, resource, caller.owner)


def _of_script(template: Template, script: Script) -> Iterator[Finding]:
    place = _Place(template, script.resource, script.lines, "user data line {}")
    data = script.lines.text.encode("utf-8", "replace")
    found = user_data.examine(data, script.resource.name, script.owner, place).findings
    # What a nested stack is handed becomes a part of its user data, in a form that is not seen here.
    is_handed = script.resource.type in (nested.STACK, nested.APPLICATION)
    yield from (f for f in found if not is_handed or f.kind not in _OF_FORM)


def _scripts(template: Template, followed: frozenset[str]) -> Iterator[Script]:
    owners = others.users(template)
    for resource in template.resources:
        for node in _user_data_of(template, resource) if resource.name not in followed else ():
            lines = template.lines(node)
            # A server that has nothing to do with containers may start Docker as it likes.
            owner = owners.get(resource.name) or (
                "ecs" if _is_about_ecs(template, lines.text) else ""
            )
            if owner and lines.text.strip() and not OPEN_LINE.fullmatch(lines.text):
                yield Script(resource, lines, owner)


def _is_about_ecs(template: Template, script: str) -> bool:
    """By what the script says, or what it has cfn-init do."""
    called = [resource.metadata for resource in template.resources if _calls_init(script, resource)]
    return any(
        _ABOUT_ECS.search(text)
        for text in (script, *(text for node in called for text in _texts(node)))
    )


def _texts(node: Node) -> Iterator[str]:
    """All that is written in it, names included."""
    yield from node.entries
    for inner in node.children():
        yield from _texts(inner)
    if node.text is not None:
        yield node.text


def _user_data_of(template: Template, resource: Resource) -> list[Node]:
    if resource.type == "AWS::EC2::LaunchTemplate":
        return [resource.get("LaunchTemplateData", "UserData")]
    if resource.type == "AWS::EC2::SpotFleet":
        specifications = resource.get("SpotFleetRequestConfigData", "LaunchSpecifications").items
        return [specification.get("UserData") or NOTHING for specification in specifications]
    if resource.type in (nested.STACK, nested.APPLICATION):
        return nested.handed(template, resource)
    return [] if resource.type.startswith("AWS::Serverless") else [resource.get("UserData")]


@dataclass(frozen=True, slots=True)
class _Place:
    """Says where a line of a script stands in the template."""

    template: Template
    resource: Resource
    lines: Lines
    #: how the line is named, where a script has lines of its own
    words: str

    def __call__(self, line: int) -> str:
        at = self.lines.at(line)
        where = f"{self.template.name}:{at}" if at else self.template.name
        what = f", {self.words.format(line)}" if line else ""
        return f"{where} ({self.resource.name}{what})"


# -- cfn-init -----------------------------------------------------------------------------------------------------


def _calls_init(script: str, resource: Resource) -> bool:
    """Whether the script has cfn-init do what the resource's metadata say."""
    is_there = not (resource.metadata.get(INIT) or NOTHING).is_empty
    return is_there and "cfn-init" in script and resource.name in script


def _of_init(template: Template, resource: Resource, owner: str) -> list[Finding]:
    """Each config in turn, as cfn-init goes through it: files, commands by their names, services."""
    found = Boot()
    files: dict[str, File] = {}
    sheet = _Sheet()
    for config in _configs(resource.metadata.get(INIT) or NOTHING):
        for path, file in _named(config, "files"):
            content = template.lines(file.get("content") or NOTHING)
            files[path] = File(content.text, sheet.add(content))
            found.wrote.append(Wrote(path, content.text, False, files[path].line))
        session = Session(files)
        for _, command in sorted(_named(config, "commands"), key=lambda pair: pair[0]):
            text = _command(template, command.get("command") or NOTHING)
            session.run(text.text, sheet.add(text), via=("cfn-init",))
        for _, manager in _named(config, "services"):
            for name, service in manager.fields().items():
                if template.is_true(service.get("ensureRunning") or NOTHING):
                    line = sheet.add(Lines("", (service.key_line or service.line,)))
                    session.run(f"service {name} start", line, via=("cfn-init",))
        take(session, found)
    place = _Place(template, resource, Lines("", tuple(sheet.lines)), "cfn-init")
    return user_data.examine_run(found, owner, place)


class _Sheet:
    """Pieces one below the other, so that a line of the whole leads back to the template."""

    def __init__(self) -> None:
        self.lines: list[int] = []

    def add(self, piece: Lines) -> int:
        """The line where it begins."""
        self.lines += piece.lines or (0,)
        return len(self.lines) - len(piece.lines or (0,)) + 1


def _configs(init: Node) -> list[Node]:
    return (
        [node for name, node in init.fields().items() if name != "configSets"]
        if init.entries
        else []
    )


def _named(config: Node, section: str) -> list[tuple[str, Node]]:
    node = config.get(section)
    return list(node.fields().items()) if node is not None else []


def _command(template: Template, node: Node) -> Lines:
    """A text for a shell, or the words of a command."""
    if not isinstance(node, Sequence) or node.tag:
        return template.lines(node)
    words = [template.lines(item) for item in node.items]
    quoted = " ".join("'" + word.text.replace("'", "'\\''") + "'" for word in words)
    return Lines(quoted, words[0].lines[:1] if words else ())
