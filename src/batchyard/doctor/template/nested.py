"""Follow nested stacks: into their templates, or else into the scripts passed to them. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from batchyard.doctor.finding import Unseen
from batchyard.doctor.template.read import read
from batchyard.doctor.template.resources import Resource, Template
from batchyard.doctor.userdata import examine as user_data
from batchyard.doctor.yaml_tree import make_mapping
from batchyard.errors import InputError
from batchyard.yaml_positions import Mapping, Node, Scalar

STACK = "AWS::CloudFormation::Stack"
APPLICATION = "AWS::Serverless::Application"
MAX_DEPTH = 5

#: path -> the bytes of that file; None if it does not exist
ReadFile = Callable[[str], bytes | None]

_SCRIPT_NAME = re.compile(r"user_?data|script", re.IGNORECASE)
_SCRIPT_START = re.compile(r"\s*(?:#!|#cloud-|MIME-Version:|Content-Type: multipart)", re.I)


def find_stacks(template: Template) -> list[Resource]:
    return template.of_type(STACK, APPLICATION)


def _template_path(template: Template, stack: Resource) -> str:
    """Return the path of the stack's template, relative as the parent's; empty if it is no file."""
    node = stack.get("TemplateURL" if stack.type == STACK else "Location")
    # The CDK notes the local path of the template that it will upload.
    asset = stack.metadata.get("aws:asset:path")
    text = asset.text if asset is not None else template.text(node)
    if not text or "://" in text or "\0" in text:
        return ""
    return posixpath.normpath(posixpath.join(posixpath.dirname(template.name), text))


def read_parameters(template: Template, stack: Resource) -> dict[str, str]:
    """Return parameter -> text. Unknown values inside a script are written __name__."""
    texts = {}
    for name, node in stack.get("Parameters").fields().items():
        text = template.text(node)
        if text is None and _is_script(name, template.lines(node).text):
            text = template.lines(node).text
        if text is not None:
            texts[name] = text
    return texts


def _is_script(name: str, text: str) -> bool:
    """Guess by the parameter's name and the text: several lines are most likely a script."""
    is_likely = _SCRIPT_NAME.search(name) or _SCRIPT_START.match(text) or "\n" in text.strip()
    return bool(text.strip()) and bool(is_likely)


def read_template(template: Template, stack: Resource, read_file: ReadFile) -> Template | None:
    """Read the template of a nested stack, with its parameters; None if that is not possible."""
    path = _template_path(template, stack)
    data = read_file(path) if path else None
    if data is None:
        return None
    try:
        child = read(data, path)
    except InputError:
        return None
    texts = read_parameters(template, stack)
    parameters = dict(child.parameters)
    for name in stack.get("Parameters").fields():
        declaration = parameters.get(name)
        if not isinstance(declaration, Mapping):
            continue
        fields = {key: node for key, node in declaration.fields().items() if key != "Default"}
        if name in texts:
            fields["Default"] = Scalar(declaration.line, 0, texts[name])
        parameters[name] = make_mapping(fields, declaration.line)
    return replace(child, parameters=parameters)


def find_scripts(template: Template, stack: Resource) -> list[Node]:
    """Return the scripts among the parameters of a nested stack."""
    parameters = stack.get("Parameters").fields()
    return [
        node for name, node in parameters.items() if _is_script(name, template.lines(node).text)
    ]


def find_unread(template: Template, read_stacks: frozenset[str]) -> Iterator[Unseen]:
    """Yield the checks not made of stacks with scripts whose templates were not read."""
    for stack in find_stacks(template):
        if stack.name in read_stacks or not find_scripts(template, stack):
            continue
        reason = f"{stack.name} hands a script on to a template that could not be read"
        yield from (Unseen(kind, reason) for kind, _, _ in user_data.CHECKS)
