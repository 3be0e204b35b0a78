"""What a change set would do to a stack: add, change, replace or remove resources. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from batchyard.infra.catalogue import Resource, Template

_MAX_VALUE_CHARS = 60
#: Types of resources that decide who may do what.
_PERMISSION_TYPES = ("AWS::IAM::", "AWS::S3::BucketPolicy")


class Action(Enum):
    ADD = "add"
    CHANGE = "change"
    REPLACE = "replace"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Change:
    action: Action
    #: The logical id in the template.
    name: str
    kind: str
    #: The properties that change, and why.
    details: tuple[str, ...] = ()
    #: True if AWS decides only during the change whether it replaces the resource.
    may_replace: bool = False

    @property
    def is_about_permissions(self) -> bool:
        return self.kind.startswith(_PERMISSION_TYPES)


def from_change_set(changes: Iterable[Mapping[str, Any]]) -> list[Change]:
    """Convert the Changes of DescribeChangeSet, in their order."""
    return [
        _to_change(change["ResourceChange"]) for change in changes if "ResourceChange" in change
    ]


def from_resources(resources: Iterable[Resource]) -> list[Change]:
    """Return the changes that create these resources of a template."""
    return [Change(Action.ADD, resource.name, resource.kind) for resource in resources]


def changed_exports(
    template: Template, changes: Iterable[Change], parameters: Iterable[str]
) -> list[str]:
    """Return the exports, with `${Env}` in their names, whose values would change.

    ``parameters`` are the names of the parameters that change.
    """
    new_ids = {
        change.name for change in changes if change.action in (Action.REPLACE, Action.REMOVE)
    }
    changed = new_ids.union(parameters)
    return sorted(name for name, sources in template.export_sources.items() if sources & changed)


def _to_change(document: Mapping[str, Any]) -> Change:
    replacement = document.get("Replacement")
    actions = {"Add": Action.ADD, "Import": Action.ADD, "Remove": Action.REMOVE}
    action = actions.get(
        document["Action"], Action.REPLACE if replacement == "True" else Action.CHANGE
    )
    details = tuple(dict.fromkeys(filter(None, map(_describe_detail, document.get("Details", [])))))
    may_replace = action is Action.CHANGE and replacement == "Conditional"
    if action is Action.REMOVE and document.get("PolicyAction") == "Retain":
        details = ("it leaves the stack, and stays",)
    name, kind = document["LogicalResourceId"], document["ResourceType"]
    return Change(action, name, kind, details, may_replace)


def _describe_detail(detail: Mapping[str, Any]) -> str:
    target = detail.get("Target", {})
    cause = detail.get("CausingEntity")
    if detail.get("Evaluation") == "Dynamic" and not cause:
        # AWS lists a change by a parameter or resource a second time, as a guess.
        return ""
    path = target.get("Path", "").removeprefix("/Properties/").replace("/", ".")
    text = str(path or target.get("Name") or target.get("Attribute", "")).strip()
    if not text:
        return ""
    old_value, new_value = target.get("BeforeValue"), target.get("AfterValue")
    if old_value is not None and new_value is not None:
        text += f": {_shorten(old_value)} -> {_shorten(new_value)}"
    if cause:
        text += f" (by {cause})"
    return text + (", replaces it" if target.get("RequiresRecreation") == "Always" else "")


def _shorten(value: Any) -> str:
    line = " ".join(str(value).split())
    return line if len(line) <= _MAX_VALUE_CHARS else f"{line[: _MAX_VALUE_CHARS - 3]}..."


def summarize(changes: Iterable[Change]) -> str:
    """Return the numbers of changes, such as `2 added, 1 replaced`."""
    words = {
        Action.ADD: "added",
        Action.CHANGE: "changed",
        Action.REPLACE: "replaced",
        Action.REMOVE: "removed",
    }
    counts = Counter(change.action for change in changes)
    return ", ".join(f"{counts[action]} {words[action]}" for action in Action if counts[action])
