"""Examine the scripts in a template: user data, and what user data has cfn-init do. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from batchyard.doctor.finding import Finding, Unseen
from batchyard.doctor.shell.files import File
from batchyard.doctor.shell.session import Session
from batchyard.doctor.shell.trace import FileWrite
from batchyard.doctor.template import launch_templates, nested
from batchyard.doctor.template.resources import NOTHING, UNKNOWN_LINE, Lines, Resource, Template
from batchyard.doctor.userdata import examine as user_data
from batchyard.doctor.userdata.boot import Boot
from batchyard.yaml_positions import Node, Sequence

INIT = "AWS::CloudFormation::Init"
_FORM_KINDS = frozenset(kind for kind, _, _ in user_data.FORM_CHECKS)
_ABOUT_ECS = re.compile(r"(?<![a-z0-9])ecs(?![a-z0-9])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Script:
    resource: Resource
    lines: Lines
    #: "batch" or "ecs": the service whose host runs the script
    owner: str


Result = Finding | Unseen
#: template, resource, text and owner of a script -> its findings, and what was not seen
Examined = dict[tuple[str, str, Lines, str], tuple[Result, ...]]


def examine(
    template: Template, read_stacks: frozenset[str], examined: Examined
) -> Iterator[Result]:
    """Yield the findings of all scripts, and the checks that a script leaves open.

    ``read_stacks`` are the nested stacks that are examined on their own. ``examined`` holds the
    results of other variants of the template; new ones are added to it.
    """
    scripts = list(_find_scripts(template, read_stacks))
    for script in scripts:
        key = (template.name, script.resource.name, script.lines, script.owner)
        if key not in examined:
            examined[key] = tuple(_examine_script(template, script))
        yield from examined[key]
    for resource in template.resources:
        callers = (script for script in scripts if _calls_init(script.lines.text, resource))
        caller = next(callers, None)
        if caller is not None:
            yield from _examine_init(template, resource, caller.owner)


def _examine_script(template: Template, script: Script) -> Iterator[Result]:
    place = _Place(template, script.resource, script.lines, "user data line {}")
    data = script.lines.text.encode("utf-8", "replace")
    size = len(data) + script.lines.packed_bytes if script.lines.packed_bytes else 0
    report = user_data.examine(data, script.resource.name, script.owner, place, size=size)
    yield from report.unseen
    findings = report.findings
    # A script passed to a nested stack is only a part of the user data there: its form is unknown.
    is_parameter = script.resource.type in (nested.STACK, nested.APPLICATION)
    yield from (
        finding for finding in findings if not is_parameter or finding.kind not in _FORM_KINDS
    )


def _find_scripts(template: Template, read_stacks: frozenset[str]) -> Iterator[Script]:
    owners = launch_templates.find_owners(template)
    for resource in template.resources:
        if resource.name in read_stacks:
            continue
        for node in _find_user_data(template, resource):
            lines = template.lines(node)
            owner = owners.get(resource.name, "")
            # A server that has nothing to do with containers may start Docker as it likes.
            if not owner and _is_about_ecs(template, lines.text):
                owner = "ecs"
            if owner and lines.text.strip() and not UNKNOWN_LINE.fullmatch(lines.text):
                yield Script(resource, lines, owner)


def _is_about_ecs(template: Template, script: str) -> bool:
    """Return whether the script, or the cfn-init metadata that it uses, mentions ECS."""
    called = (resource for resource in template.resources if _calls_init(script, resource))
    texts = (text for resource in called for text in _walk_texts(resource.metadata))
    return any(_ABOUT_ECS.search(text) for text in (script, *texts))


def _walk_texts(node: Node) -> Iterator[str]:
    """Yield every key and scalar in the node."""
    yield from node.entries
    for child in node.children():
        yield from _walk_texts(child)
    if node.text is not None:
        yield node.text


def _find_user_data(template: Template, resource: Resource) -> list[Node]:
    if resource.type == "AWS::EC2::LaunchTemplate":
        return [resource.get("LaunchTemplateData", "UserData")]
    if resource.type == "AWS::EC2::SpotFleet":
        specifications = resource.get("SpotFleetRequestConfigData", "LaunchSpecifications").items
        return [specification.get("UserData") or NOTHING for specification in specifications]
    if resource.type in (nested.STACK, nested.APPLICATION):
        return nested.find_scripts(template, resource)
    return [] if resource.type.startswith("AWS::Serverless") else [resource.get("UserData")]


@dataclass(frozen=True, slots=True)
class _Place:
    """Names the place in the template of a line of a script."""

    template: Template
    resource: Resource
    lines: Lines
    #: how the line of the script itself is named; {} is its number
    label: str

    def __call__(self, line: int) -> str:
        file_line = self.lines.at(line)
        file = f"{self.template.name}:{file_line}" if file_line else self.template.name
        label = f", {self.label.format(line)}" if line else ""
        return f"{file} ({self.resource.name}{label})"


# -- cfn-init ------------------------------------------------------------------------------------


def _calls_init(script: str, resource: Resource) -> bool:
    """Return whether the script runs cfn-init with the metadata of the resource."""
    has_init = not (resource.metadata.get(INIT) or NOTHING).is_empty
    return has_init and "cfn-init" in script and resource.name in script


def _examine_init(template: Template, resource: Resource, owner: str) -> list[Finding]:
    """Examine each config in cfn-init's order: files, commands by their names, services."""
    boot = Boot()
    files: dict[str, File] = {}
    sheet = _Sheet()
    for config in _find_configs(resource.metadata.get(INIT) or NOTHING):
        for path, file in _fields_of(config, "files"):
            content = template.lines(file.get("content") or NOTHING)
            files[path] = File(content.text, sheet.add(content))
            boot.writes.append(FileWrite(path, content.text, False, files[path].line))
        session = Session(files)
        for text, lines in _find_commands(template, config):
            session.run(text, sheet.add(lines), via=("cfn-init",))
        boot.add(session)
    place = _Place(template, resource, Lines("", tuple(sheet.lines)), "cfn-init")
    return user_data.examine_commands(boot, owner, place)


def _find_commands(template: Template, config: Node) -> Iterator[tuple[str, Lines]]:
    """Yield the commands of a config, and a start for each service that must run."""
    for _, command in sorted(_fields_of(config, "commands"), key=lambda field: field[0]):
        lines = _command_lines(template, command.get("command") or NOTHING)
        yield lines.text, lines
    for _, manager in _fields_of(config, "services"):
        for name, service in manager.fields().items():
            if template.is_true(service.get("ensureRunning") or NOTHING):
                yield f"service {name} start", Lines("", (service.key_line or service.line,))


class _Sheet:
    """Pieces of text written one below the other, so that each line leads back to the template."""

    def __init__(self) -> None:
        self.lines: list[int] = []

    def add(self, piece: Lines) -> int:
        """Append a piece, and return the line of the sheet at which it begins."""
        start = len(self.lines) + 1
        self.lines += piece.lines or (0,)
        return start


def _find_configs(init: Node) -> list[Node]:
    return [node for name, node in init.fields().items() if name != "configSets"]


def _fields_of(config: Node, section: str) -> list[tuple[str, Node]]:
    return list((config.get(section) or NOTHING).fields().items())


def _command_lines(template: Template, node: Node) -> Lines:
    """Return a command as text for a shell. cfn-init takes a text, or a list of words."""
    if not isinstance(node, Sequence) or node.tag:
        return template.lines(node)
    words = [template.lines(item) for item in node.items]
    quoted = " ".join("'" + word.text.replace("'", "'\\''") + "'" for word in words)
    return Lines(quoted, words[0].lines[:1] if words else ())
