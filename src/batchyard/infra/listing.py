"""Find the deployed environments of a region, and describe what they lack. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchyard.infra import catalogue
from batchyard.infra.stacks import REVIEW

#: Prefixes of the states of stacks that cannot be used: never created, or being deleted.
_UNUSABLE = ("CREATE_IN_PROGRESS", "CREATE_FAILED", "ROLLBACK_", "DELETE_")

_CLUSTER_TEMPLATES = ("ecs", "spotfleet")


@dataclass(frozen=True, slots=True)
class DeployedEnvironment:
    #: template -> the state of its stack, in the order of the templates
    states: Mapping[str, str]

    @property
    def templates(self) -> list[str]:
        """The templates whose stacks can be used."""
        return [name for name, state in self.states.items() if not state.startswith(_UNUSABLE)]

    @property
    def unfinished(self) -> dict[str, str]:
        """The stacks that are being created or deleted, or whose creation or deletion failed."""
        return {name: state for name, state in self.states.items() if state.startswith(_UNUSABLE)}

    @property
    def missing(self) -> list[str]:
        """The templates that pipelines need and that cannot be used.

        Pipelines run on queues of AWS Batch or on an ECS cluster.
        """
        has_cluster = any(name in self.states for name in _CLUSTER_TEMPLATES)
        needed = [name for name in catalogue.CORE if name != "batch" or not has_cluster]
        return [name for name in needed if name not in self.templates]


def find_environments(summaries: Sequence[Mapping[str, Any]]) -> dict[str, DeployedEnvironment]:
    """Return name -> environment, from the stack summaries of a region (ListStacks)."""
    stacks = {
        summary["StackName"]: summary["StackStatus"]
        for summary in summaries
        # An empty stack with a change set contains nothing, and may belong to anyone.
        if summary.get("TemplateDescription", "").startswith(catalogue.MARK)
        and summary["StackStatus"] != REVIEW
    }
    states: dict[str, dict[str, str]] = {}
    for template in catalogue.all_templates():
        for stack, state in stacks.items():
            environment = stack.removesuffix(f"-{template.name}")
            if environment != stack:
                states.setdefault(environment, {})[template.name] = state
    return {name: DeployedEnvironment(states[name]) for name in sorted(states)}


def describe_problem(name: str, environment: DeployedEnvironment) -> str:
    """Return what an environment lacks, and the command that completes it; empty if complete."""
    unfinished, missing = environment.unfinished, environment.missing
    absent = [template for template in missing if template not in unfinished]
    if not unfinished and not absent:
        return ""
    if not unfinished and len(absent) == len(catalogue.CORE):
        return f"not for pipelines; `batchyard deploy --env {name}` adds what they need"
    parts = [f"{template} is {state}" for template, state in unfinished.items()]
    if any(state.startswith("DELETE_") for state in unfinished.values()):
        command = f"`batchyard destroy --env {name}` deletes the rest"
        return f"in part only: {'; '.join(parts)}; {command}"
    if absent:
        parts.append(f"{', '.join(absent)} missing")
    command = f"`batchyard {_deploy_words(environment)} --env {name}` completes it"
    return f"in part only: {'; '.join(parts)}; {command}"


def _deploy_words(environment: DeployedEnvironment) -> str:
    """Return the command that completes an environment; optional templates must be named.

    `deploy` without names would add queues to an environment with an ECS cluster.
    """
    missing = environment.missing
    optional = [template for template in environment.unfinished if template not in missing]
    has_queues = "batch" in (*missing, *environment.states)
    return "deploy" if has_queues and not optional else " ".join(["deploy", *missing, *optional])
