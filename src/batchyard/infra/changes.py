"""What a change set would do to a stack, in words that people weigh: added, changed, replaced, removed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from batchyard.infra.catalogue import Template

_LONGEST_VALUE = 60
#: who may do what
_PERMISSIONS = ("AWS::IAM::", "AWS::S3::BucketPolicy")


class Action(Enum):
    ADD = "add"
    CHANGE = "change"
    REPLACE = "replace"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Change:
    action: Action
    #: its logical id in the template
    name: str
    kind: str
    #: what of it changes, and why, one each
    details: tuple[str, ...] = ()
    #: AWS finds out only while it does it
    may_replace: bool = False

    @property
    def is_about_permissions(self) -> bool:
        return self.kind.startswith(_PERMISSIONS)


def from_change_set(changes: Iterable[Mapping[str, Any]]) -> list[Change]:
    """Of DescribeChangeSet's Changes, in their order."""
    return [_change(one["ResourceChange"]) for one in changes if "ResourceChange" in one]


def from_template(template: Template) -> list[Change]:
    """What there will be of a stack that is not there yet."""
    return [
        Change(Action.ADD, one.name, one.kind, (f"if {one.condition}",) if one.condition else ())
        for one in template.resources
    ]


def changed_exports(
    template: Template, found: Iterable[Change], parameters: Iterable[str]
) -> list[str]:
    """The exports, with `${Env}` in them, whose values would be others. ``parameters``: those that change."""
    touched = {one.name for one in found if one.action in (Action.REPLACE, Action.REMOVE)}.union(
        parameters
    )
    return sorted(name for name, sources in template.export_sources.items() if sources & touched)


def _change(found: Mapping[str, Any]) -> Change:
    replacement = found.get("Replacement")
    actions = {"Add": Action.ADD, "Import": Action.ADD, "Remove": Action.REMOVE}
    action = actions.get(
        found["Action"], Action.REPLACE if replacement == "True" else Action.CHANGE
    )
    details = tuple(dict.fromkeys(filter(None, map(_detail, found.get("Details", [])))))
    may_replace = action is Action.CHANGE and replacement == "Conditional"
    if action is Action.REMOVE and found.get("PolicyAction") == "Retain":
        details = ("it leaves the stack, and stays",)
    return Change(action, found["LogicalResourceId"], found["ResourceType"], details, may_replace)


def _detail(found: Mapping[str, Any]) -> str:
    target = found.get("Target", {})
    if found.get("Evaluation") == "Dynamic" and not found.get("CausingEntity"):
        # AWS repeats what is caused by a parameter or resource as a guess of its own.
        return ""
    what = target.get("Path", "").removeprefix("/Properties/").replace("/", ".") or target.get(
        "Name"
    )
    text = str(what or target.get("Attribute", "")).strip()
    if not text:
        return ""
    before, after = target.get("BeforeValue"), target.get("AfterValue")
    if before is not None and after is not None:
        text += f": {_short(before)} -> {_short(after)}"
    cause = found.get("CausingEntity")
    if cause:
        text += f" (by {cause})"
    return text + (", replaces it" if target.get("RequiresRecreation") == "Always" else "")


def _short(value: Any) -> str:
    line = " ".join(str(value).split())
    return line if len(line) <= _LONGEST_VALUE else f"{line[: _LONGEST_VALUE - 3]}..."


def counts(changes: Iterable[Change]) -> str:
    """`2 added, 1 replaced`."""
    words = {
        Action.ADD: "added",
        Action.CHANGE: "changed",
        Action.REPLACE: "replaced",
        Action.REMOVE: "removed",
    }
    all_of_them = list(changes)
    numbers = {action: sum(one.action is action for one in all_of_them) for action in Action}
    return ", ".join(f"{number} {words[action]}" for action, number in numbers.items() if number)
