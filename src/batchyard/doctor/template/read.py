"""The text of a template -> its resources: CloudFormation, SAM, or a Terraform plan. Pure."""

from __future__ import annotations

from batchyard.doctor.template import terraform
from batchyard.doctor.template.resources import Resource, Template
from batchyard.doctor.yaml_tree import Node, NotReadable, parse
from batchyard.errors import BadInput

#: templates have at most 1 MB; plans may be larger
MAX_BYTES = 50_000_000


def read(data: bytes, name: str) -> Template:
    """Raises BadInput where it is no template at all."""
    if len(data) > MAX_BYTES:
        raise BadInput(
            f"{name} has {len(data):,} bytes: too many for a template", hint="give one template, or one plan"
        )
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    plan = terraform.plan_in(text)
    try:
        if plan is not None:
            return terraform.read(plan, name)
        root = parse(text)
    except NotReadable as exc:
        where = f"{name}:{exc.line}" if exc.line else name
        raise BadInput(
            f"{where}: it is neither YAML nor JSON: {exc.what}",
            hint="give a CloudFormation or SAM template, or what `terraform show -json PLAN` prints",
        ) from None
    if not isinstance((root.get("Resources") or Node("")).value, dict):
        raise BadInput(
            f"{name} has no Resources",
            hint="give a CloudFormation or SAM template, or what `terraform show -json PLAN` prints",
        )
    return _cloudformation(root, name)


def _cloudformation(root: Node, name: str) -> Template:
    resources = [
        Resource(key, kind.text, node.get("Properties") or Node({}), node.key_line, node.get("Metadata") or Node({}))
        for key, node in (root.get("Resources") or Node({})).value.items()
        if (kind := node.get("Type")) is not None and kind.text
    ]
    parameters = (root.get("Parameters") or Node({})).value
    is_sam = "Serverless" in _transform(root)
    return Template(
        name,
        "SAM" if is_sam else "CloudFormation",
        tuple(resources),
        dict(parameters) if isinstance(parameters, dict) else {},
    )


def _transform(root: Node) -> str:
    node = root.get("Transform")
    if node is None:
        return ""
    return node.text or " ".join(item.text or "" for item in node.items())
