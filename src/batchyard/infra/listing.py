"""Which environments a region has, as far as they are deployed, and what those that are there in part lack. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchyard.infra import catalogue
from batchyard.infra.stacks import REVIEW

#: how the state of a stack begins that was never made, or is going or half gone; a changed one stays what it was
_UNUSABLE = ("CREATE_IN_PROGRESS", "CREATE_FAILED", "ROLLBACK_", "DELETE_")


@dataclass(frozen=True, slots=True)
class Deployed:
    """An environment as far as it has stacks."""

    #: template -> its stack's state, in the templates' order
    states: Mapping[str, str]

    @property
    def templates(self) -> list[str]:
        """Those whose stacks are there to be used."""
        return [name for name, state in self.states.items() if not state.startswith(_UNUSABLE)]

    @property
    def unfinished(self) -> dict[str, str]:
        """Those that are being made or deleted, or where that has failed."""
        return {name: state for name, state in self.states.items() if state.startswith(_UNUSABLE)}

    @property
    def missing(self) -> list[str]:
        """Of what pipelines need."""
        return [name for name in catalogue.CORE if name not in self.templates]


def deployed_environments(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Deployed]:
    """By name, from the stacks of a region as ListStacks tells of them."""
    ours = {
        one["StackName"]: one["StackStatus"]
        for one in summaries
        # An empty stack with a change set has made nothing, and may be anybody's.
        if one.get("TemplateDescription", "").startswith(catalogue.MARK)
        and one["StackStatus"] != REVIEW
    }
    found: dict[str, dict[str, str]] = {}
    for template in catalogue.everything():
        for stack, state in ours.items():
            environment = stack.removesuffix(f"-{template.name}")
            if environment != stack:
                found.setdefault(environment, {})[template.name] = state
    return {name: Deployed(found[name]) for name in sorted(found)}


def shortcoming(environment: str, found: Deployed) -> str:
    """What an environment that is there in part lacks, and the command that mends it; empty where it is whole."""
    unfinished, missing = found.unfinished, found.missing
    absent = [name for name in missing if name not in unfinished]
    parts = [f"{name} is {state}" for name, state in unfinished.items()]
    if any(state.startswith("DELETE_") for state in unfinished.values()):
        return f"in part only: {'; '.join(parts)}; `batchyard destroy --env {environment}` deletes the rest"
    if not unfinished and len(absent) == len(catalogue.CORE):
        return f"not for pipelines; `batchyard deploy --env {environment}` adds what they need"
    if not unfinished and not absent:
        return ""
    parts += [f"{', '.join(absent)} missing"] if absent else []
    # `deploy` alone is about what pipelines need; the others have to be named.
    others = [name for name in unfinished if name not in missing]
    words = " ".join(["deploy", *missing, *others] if others else ["deploy"])
    return f"in part only: {'; '.join(parts)}; `batchyard {words} --env {environment}` completes it"
