"""Read the output of `terraform show -json` as resources with CloudFormation's names. Pure.

Each check is so written once. Values that the plan does not know yet are left out. References
between resources come from the configuration, since ids are unknown before the resources exist.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from batchyard.doctor.template.resources import Resource, Template
from batchyard.doctor.template.terraform_references import find_references, remove_indexes
from batchyard.doctor.template.terraform_resources import (
    TRANSLATIONS,
    Values,
    dict_at,
    dicts_in,
    first_block,
)
from batchyard.doctor.yaml_tree import from_plain

_MAX_DEPTH = 20
_PARAMETER = "aws_ssm_parameter"
#: The function that stands for a value that is known only when the plan is applied.
PLANNED = "Planned"
#: Attributes that the provider never fills in by itself: an unknown value is a reference.
_NEVER_COMPUTED = frozenset(
    {
        "instance_type",
        "image_type",
        "image_id",
        "image_id_override",
        "instance_role",
        "bid_percentage",
        "allocation_strategy",
        "cidr_blocks",
        "ipv6_cidr_blocks",
        "cidr_ipv4",
        "cidr_ipv6",
        "policy",
        "policy_arn",
        "managed_termination_protection",
    }
)
_USER_DATA = ("user_data", "user_data_base64")


def parse_plan(text: str) -> Values | None:
    """Return the plan or state; None if the text is something else."""
    if not text.lstrip().startswith("{") or '"format_version"' not in text:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_plan = isinstance(value, dict) and ("planned_values" in value or "values" in value)
    return value if is_plan else None


def read(plan: Values, name: str) -> Template:
    """Read the resources of a plan or state. Raises NotReadableError if it is nested too deep."""
    configuration = dict_at(plan, "configuration")
    references = find_references(configuration)
    roles = find_references(configuration, "instance_role")
    image_paths = _find_image_paths(plan)
    values = plan.get("planned_values") or plan.get("values")
    unknown_values = {
        str(change.get("address", "")): dict_at(change, "change", "after_unknown")
        for change in dicts_in(plan.get("resource_changes"))
    }
    resources = []
    for entry in _walk_resources(dict_at({"values": values}, "values", "root_module")):
        kind, content = entry.get("type"), entry.get("values")
        is_translated = isinstance(kind, str) and kind in TRANSLATIONS
        if not is_translated or not isinstance(content, dict) or entry.get("mode") == "data":
            continue
        address = str(entry.get("address", ""))
        base = remove_indexes(address)
        type_name, translate = TRANSLATIONS[str(kind)]
        content = _set_image_path(content, image_paths.get(base))
        properties = translate(_mark_unknown(content, unknown_values.get(address), 0))
        if "planned_values" not in plan:
            _remove_defaults(properties)
        if roles.get(base):
            _set_instance_role(properties, roles[base])
        properties["References"] = references.get(base, [])
        resources.append(Resource(address, type_name, from_plain(properties)))
    unknown_user_data = tuple(_find_unknown_user_data(plan))
    return Template(name, "Terraform", tuple(resources), unknown_user_data=unknown_user_data)


def _find_image_paths(plan: Values) -> dict[str, str]:
    """Return address -> the path in SSM that its image is looked up at."""
    configuration = dict_at(plan, "configuration")
    prior_state = dict_at(plan, "prior_state", "values", "root_module")
    paths = {
        remove_indexes(str(entry.get("address", ""))): str(dict_at(entry, "values").get("name", ""))
        for entry in _walk_resources(prior_state)
        if entry.get("mode") == "data" and entry.get("type") == _PARAMETER
    }
    references = find_references(configuration, "image_id")
    references |= find_references(configuration, "image_id_override")
    return {
        address: next(paths[target] for target in targets if target in paths)
        for address, targets in references.items()
        if any(target in paths for target in targets)
    }


def _set_image_path(content: Values, path: str | None) -> Values:
    """Replace the image's id by its path in SSM, which says what the image is."""
    if path is None:
        return content
    image = {"image_id": f"resolve:ssm:{path}"}
    if "compute_resources" not in content:
        return content | image
    return content | {"compute_resources": [first_block(content, "compute_resources") | image]}


def _set_instance_role(properties: Values, names: list[str]) -> None:
    """Set InstanceRole by the references: its value is unknown before the role exists."""
    resources = dict_at(properties, "ComputeResources")
    if isinstance(resources.get("InstanceRole"), str):
        return
    kinds = {name.split(".")[-2] for name in names}
    if kinds == {"aws_iam_role"}:
        resources["InstanceRole"] = {"Ref": names[0]}
    elif "aws_iam_instance_profile" in kinds:
        resources.pop("InstanceRole", None)


def _remove_defaults(properties: Values) -> None:
    """Remove a default that a state contains: a Spot strategy, even for groups without Spot."""
    distribution = dict_at(properties, "MixedInstancesPolicy", "InstancesDistribution")
    if distribution.get("SpotAllocationStrategy") == "lowest-price":
        del distribution["SpotAllocationStrategy"]


def _mark_unknown(value: Any, unknown: Any, depth: int) -> Any:
    """Return the values with the function PLANNED for each one that is not known yet."""
    if depth > _MAX_DEPTH:
        return value
    if isinstance(value, list) and isinstance(unknown, list):
        pairs = zip_longest(value, unknown[: len(value)])
        return [_mark_unknown(item, is_unknown, depth + 1) for item, is_unknown in pairs]
    if isinstance(value, dict) and isinstance(unknown, dict):
        return _mark_fields(value, unknown, depth)
    return value


def _mark_fields(value: Values, unknown: Values, depth: int) -> Values:
    marked = {key: _mark_unknown(item, unknown.get(key), depth + 1) for key, item in value.items()}
    for key in _NEVER_COMPUTED:
        if unknown.get(key) is True and marked.get(key) in (None, "", []):
            marked[key] = {f"Fn::{PLANNED}": key}
    return marked


def _find_unknown_user_data(plan: Values) -> Iterator[str]:
    """Yield the addresses whose user data is known only when the plan is applied."""
    for change in dicts_in(plan.get("resource_changes")):
        unknown = dict_at(change, "change", "after_unknown")
        planned = dict_at(change, "change", "after")
        is_unknown = any(unknown.get(key) is True for key in _USER_DATA)
        # A resource that sets one of the two attributes leaves the other one unknown.
        if is_unknown and not any(planned.get(key) for key in _USER_DATA):
            yield str(change.get("address", ""))


def _walk_resources(module: Values, depth: int = 0) -> Iterator[Values]:
    yield from dicts_in(module.get("resources"))
    if depth < _MAX_DEPTH:
        for child in dicts_in(module.get("child_modules")):
            yield from _walk_resources(child, depth + 1)
