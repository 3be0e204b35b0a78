"""Nested stacks: their own templates where these lie beside this one, else what they are handed. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from batchyard.doctor.finding import Unseen
from batchyard.doctor.template import unknown
from batchyard.doctor.template.read import read
from batchyard.doctor.template.resources import Resource, Template
from batchyard.doctor.yaml_tree import make_mapping
from batchyard.errors import InputError
from batchyard.yaml_positions import Mapping, Node, Scalar

STACK = "AWS::CloudFormation::Stack"
APPLICATION = "AWS::Serverless::Application"
MAX_DEPTH = 5

#: path -> the bytes of that file; None where there is none
Beside = Callable[[str], bytes | None]

_NAMED_SO = re.compile(r"user_?data|script", re.IGNORECASE)
_BEGINS_SO = re.compile(r"\s*(?:#!|#cloud-|MIME-Version:|Content-Type: multipart)", re.IGNORECASE)


def stacks(template: Template) -> list[Resource]:
    return template.of_type(STACK, APPLICATION)


def path_of(template: Template, stack: Resource) -> str:
    """Where its template lies, as seen from this one; empty where that is no file."""
    node = stack.get("TemplateURL" if stack.type == STACK else "Location")
    # The CDK says where it put the template before it is uploaded.
    asset = stack.metadata.get("aws:asset:path")
    text = asset.text if asset is not None else template.text(node)
    if not text or "://" in text or "\0" in text:
        return ""
    return posixpath.normpath(posixpath.join(posixpath.dirname(template.name), text))


def given(template: Template, stack: Resource) -> dict[str, str]:
    """Parameter -> its text; what is open in a script stands as __name__."""
    found = {}
    for name, node in stack.get("Parameters").fields().items():
        text = template.text(node)
        if text is None and is_script(name, template.lines(node).text):
            text = template.lines(node).text
        if text is not None:
            found[name] = text
    return found


def is_script(name: str, text: str) -> bool:
    """By its parameter's name, or by its looks: several lines of text are most likely one."""
    is_so = _NAMED_SO.search(name) or _BEGINS_SO.match(text) or "\n" in text.strip()
    return bool(text.strip()) and bool(is_so)


def read_inner(template: Template, stack: Resource, beside: Beside) -> Template | None:
    """The stack's template with its parameters; None where it cannot be read."""
    path = path_of(template, stack)
    data = beside(path) if path else None
    if data is None:
        return None
    try:
        inner = read(data, path)
    except InputError:
        return None
    texts = given(template, stack)
    parameters = dict(inner.parameters)
    for name in stack.get("Parameters").fields():
        declared = parameters.get(name)
        if declared is None or not isinstance(declared, Mapping):
            continue
        fields = {key: node for key, node in declared.fields().items() if key != "Default"}
        if name in texts:
            fields["Default"] = Scalar(declared.line, 0, texts[name])
        parameters[name] = make_mapping(fields, declared.line)
    return replace(inner, parameters=parameters)


def handed(template: Template, stack: Resource) -> list[Node]:
    """The scripts among what a stack is given."""
    parameters = stack.get("Parameters").fields()
    return [node for name, node in parameters.items() if is_script(name, template.lines(node).text)]


def not_followed(template: Template, followed: frozenset[str]) -> Iterator[Unseen]:
    for stack in stacks(template):
        if stack.name in followed or not handed(template, stack):
            continue
        why = f"{stack.name} hands a script on to a template that could not be read"
        yield from (Unseen(kind, why) for kind in unknown.USER_DATA)
