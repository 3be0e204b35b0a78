"""Read the resources of a template: CloudFormation, SAM, or a Terraform plan. Pure."""

from __future__ import annotations

from dataclasses import replace

from batchyard.doctor.template import loops, terraform
from batchyard.doctor.template.resources import NOTHING, Resource, Template
from batchyard.doctor.yaml_tree import NotReadableError, parse
from batchyard.errors import InputError
from batchyard.yaml_positions import Mapping, Node

#: CloudFormation accepts templates of at most 1 MB; Terraform plans may be larger.
MAX_BYTES = 50_000_000
_HINT = "give a CloudFormation or SAM template, or what `terraform show -json PLAN` prints"


def read(data: bytes, name: str) -> Template:
    """Read a template. Raises InputError if the bytes are not a template."""
    if len(data) > MAX_BYTES:
        raise InputError(
            f"{name} has {len(data):,} bytes: too many for a template",
            hint="give one template, or one plan",
        )
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    plan = terraform.parse_plan(text)
    try:
        if plan is not None:
            return terraform.read(plan, name)
        root = parse(text)
    except NotReadableError as exc:
        place = f"{name}:{exc.line}" if exc.line else name
        problem = f"{place}: it is neither YAML nor JSON: {exc.problem}"
        raise InputError(problem, hint=_HINT) from None
    if not isinstance(root.get("Resources"), Mapping):
        raise InputError(f"{name} has no Resources", hint=_HINT)
    return _read_cloudformation(root, name)


def _read_cloudformation(root: Node, name: str) -> Template:
    transform = _read_transform(root)
    template = Template(
        name,
        "SAM" if "Serverless" in transform else "CloudFormation",
        parameters=_read_section(root, "Parameters"),
        mappings=_read_section(root, "Mappings"),
        conditions=_read_section(root, "Conditions"),
    )
    nodes = root.get("Resources") or NOTHING
    unknown_loops: tuple[str, ...] = ()
    if "LanguageExtensions" in transform:
        nodes, unknown_loops = loops.expand_loops(nodes, template)
    resources = [
        Resource(
            name,
            kind.text,
            node.get("Properties") or NOTHING,
            node.key_line,
            node.get("Metadata") or NOTHING,
            (node.get("Condition") or NOTHING).text or "",
        )
        for name, node in nodes.fields().items()
        if (kind := node.get("Type")) is not None and kind.text
    ]
    return replace(template, resources=tuple(resources), unknown_loops=unknown_loops)


def _read_section(root: Node, name: str) -> dict[str, Node]:
    return (root.get(name) or NOTHING).fields()


def _read_transform(root: Node) -> str:
    node = root.get("Transform") or NOTHING
    return node.text or " ".join(item.text or "" for item in node.items)
