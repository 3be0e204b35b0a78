"""`weight` of a step: how much work each command of its list is, as numbers or a word of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchyard import child_patterns, yaml_positions
from batchyard.pipeline_file.file_keys import StepDraft
from batchyard.pipeline_file.mistakes import Mistakes
from batchyard.pipeline_file.value_types import parse_weight
from batchyard.shard import DYNAMIC
from batchyard.units import pluralize, quote
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
    """Return the number that each command has as the word. Only the first mistake is added."""
    weights = []
    for command in commands:
        try:
            word = child_patterns.find_word(placeholder, command)
        except ValueError as exc:
            problem = f"weight is {quote(placeholder)}, and {exc}"
            mistakes.add(node, problem, "name a word that every command has")
            break
        weight = parse_weight(word)
        if weight is None:
            problem = (
                f"weight is {quote(placeholder)}, which is {quote(word[:40])} in the command"
                f" {quote(command[:80])}"
            )
            mistakes.add(node, problem, "name a word that is a number, 0 or more")
            break
        weights.append(weight)
    return weights
