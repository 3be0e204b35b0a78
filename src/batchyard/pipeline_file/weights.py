"""`weight` of a step: how much work each command of its list is, as numbers or a word of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchyard import yaml_positions
from batchyard.pipeline_file import command_weights
from batchyard.pipeline_file.command_weights import WeightError
from batchyard.pipeline_file.file_keys import StepDraft
from batchyard.pipeline_file.mistakes import Mistakes
from batchyard.shard import DYNAMIC
from batchyard.units import pluralize
from batchyard.yaml_positions import Node


def read_weights(
    draft: StepDraft, commands: Sequence[str] | None, mistakes: Mistakes
) -> dict[str, Any]:
    """Return the step's field with a weight for each command, after adding mistakes.

    ``commands``: the list of the step; None without a list, or after a mistake in it.
    """
    written = draft.values.get("weight")
    if written is None:
        return {}
    node = draft.node_of("weight")
    if draft.values.get("share_out") != DYNAMIC:
        mistakes.add(
            node,
            "weight is for commands that are handed out one by one",
            "add share_out: dynamic, or remove it",
        )
    elif commands is not None and isinstance(written, str):
        return {"weight": tuple(_words_as_weights(written, commands, node, mistakes))}
    elif commands is not None and isinstance(node, yaml_positions.Sequence):
        count = len(node.items)  # invalid ones included, which have their mistakes
        if count != len(commands):
            numbers = pluralize(count, "number")
            problem = f"weight has {numbers}, and the list {pluralize(len(commands), 'command')}"
            mistakes.add(node, problem, "write a number for each command")
    return {"weight": () if isinstance(written, str) else written}


def _words_as_weights(
    placeholder: str, commands: Sequence[str], node: Node, mistakes: Mistakes
) -> list[float]:
    try:
        return command_weights.read_weights(placeholder, commands)
    except WeightError as exc:
        mistakes.add(node, exc.problem, exc.suggestion)
        return []
