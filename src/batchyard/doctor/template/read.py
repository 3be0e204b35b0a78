"""The text of a template -> its resources: CloudFormation, SAM, or a Terraform plan. Pure."""

from __future__ import annotations

from dataclasses import replace

from batchyard.doctor.template import loops, terraform
from batchyard.doctor.template.resources import NOTHING, Resource, Template
from batchyard.doctor.yaml_tree import NotReadableError, parse
from batchyard.errors import InputError
from batchyard.yaml_positions import Mapping, Node

#: templates have at most 1 MB; plans may be larger
MAX_BYTES = 50_000_000


def read(data: bytes, name: str) -> Template:
    """Raises InputError where it is no template at all."""
    if len(data) > MAX_BYTES:
        raise InputError(
            f"{name} has {len(data):,} bytes: too many for a template",
            hint="give one template, or one plan",
        )
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    plan = terraform.plan_in(text)
    try:
        if plan is not None:
            return terraform.read(plan, name)
        root = parse(text)
    except NotReadableError as exc:
        where = f"{name}:{exc.line}" if exc.line else name
        raise InputError(
            f"{where}: it is neither YAML nor JSON: {exc.problem}",
            hint="give a CloudFormation or SAM template, or what `terraform show -json PLAN` prints",
        ) from None
    if not isinstance(root.get("Resources"), Mapping):
        raise InputError(
            f"{name} has no Resources",
            hint="give a CloudFormation or SAM template, or what `terraform show -json PLAN` prints",
        )
    return _cloudformation(root, name)


def _cloudformation(root: Node, name: str) -> Template:
    is_sam = "Serverless" in _transform(root)
    empty = Template(
        name,
        "SAM" if is_sam else "CloudFormation",
        parameters=_section(root, "Parameters"),
        mappings=_section(root, "Mappings"),
        conditions=_section(root, "Conditions"),
    )
    named = root.get("Resources") or NOTHING
    unknown: tuple[str, ...] = ()
    if "LanguageExtensions" in _transform(root):
        named, unknown = loops.written_out(named, empty)
    resources = [
        Resource(
            key,
            kind.text,
            node.get("Properties") or NOTHING,
            node.key_line,
            node.get("Metadata") or NOTHING,
            (node.get("Condition") or NOTHING).text or "",
        )
        for key, node in named.fields().items()
        if (kind := node.get("Type")) is not None and kind.text
    ]
    return replace(empty, resources=tuple(resources), loops=unknown)


def _section(root: Node, name: str) -> dict[str, Node]:
    return (root.get(name) or NOTHING).fields()


def _transform(root: Node) -> str:
    node = root.get("Transform")
    if node is None:
        return ""
    return node.text or " ".join(item.text or "" for item in node.items)
