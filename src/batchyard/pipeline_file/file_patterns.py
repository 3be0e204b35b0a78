"""The patterns of a step's files: fill in params, and check what differs from child to child."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from batchyard import child_patterns, yaml_positions
from batchyard.pipeline_file import command_lists
from batchyard.pipeline_file.file_keys import StepDraft
from batchyard.pipeline_file.mistakes import Mistakes
from batchyard.units import quote

PATTERN_KEYS = ("inputs", "outputs", "checkpoint")
#: Keys whose patterns may have `${command.WORD}`: outputs are matched without the commands.
_COMMAND_KEYS = ("inputs",)


def read_patterns(
    draft: StepDraft,
    commands: Sequence[str] | None,
    params: Mapping[str, str] | None,
    mistakes: Mistakes,
) -> dict[str, tuple[str, ...]]:
    """Return the step's patterns with params filled in, after adding a mistake for wrong ones.

    ``commands``: the list of the step; None without a list. ``params``: None if they are invalid.
    """
    patterns: dict[str, tuple[str, ...]] = {}
    for key in PATTERN_KEYS:
        node = draft.node_of(key)
        if key not in draft.values or not isinstance(node, yaml_positions.Sequence):
            continue
        filled = tuple(
            command_lists.fill_params(pattern, params or {}) for pattern in draft.values[key]
        )
        patterns[key] = filled
        if params is None or len(node.items) != len(filled):
            continue
        for item, written, pattern in zip(node.items, draft.values[key], filled, strict=True):
            _check_pattern(draft, key, item, (written, pattern), commands, params, mistakes)
    return patterns


def _check_pattern(
    draft: StepDraft,
    key: str,
    node: yaml_positions.Node,
    texts: tuple[str, str],
    commands: Sequence[str] | None,
    params: Mapping[str, str],
    mistakes: Mistakes,
) -> None:
    """Add the mistakes of one pattern. ``texts``: as written, and with params filled in."""
    written, pattern = texts
    count = mistakes.count
    command_lists.check_params(written, params, node, mistakes, in_list=True)
    if mistakes.count > count:
        return
    problem = _find_problem(draft, key, pattern, commands)
    if problem:
        mistakes.add(node, f"an item of {key} {problem[0]}", problem[1])


def _find_problem(
    draft: StepDraft, key: str, pattern: str, commands: Sequence[str] | None
) -> tuple[str, str] | None:
    """Return what is wrong with a pattern, and what to write instead."""
    for name in child_patterns.placeholders(pattern):
        problem = _find_placeholder_problem(draft, key, name, commands)
        if problem:
            return problem
    if not child_patterns.is_inside_workspace(pattern):
        text = f"is {quote(pattern)}, which is not inside the workspace"
        return text, "write a path or pattern relative to it, like data/**"
    if not child_patterns.names_command(pattern):
        return None
    try:
        for command in commands or ():
            child_patterns.fill_words(pattern, command)
    except ValueError as exc:
        return f"is {quote(pattern)}, and {exc}", "check the commands, or name another word"
    return None


def _find_placeholder_problem(
    draft: StepDraft, key: str, name: str, commands: Sequence[str] | None
) -> tuple[str, str] | None:
    placeholder = "${" + name + "}"
    if name == child_patterns.INDEX:
        if "array" not in draft.node.entries:
            return f"has {placeholder}, and the step has no array", "write array: and a number"
        return None
    if not child_patterns.is_command_word(name):
        allowed_references = "${index}, ${params.NAME} or ${command.WORD}"
        return f"has {placeholder}, which is not known", f"write {allowed_references}"
    if key not in _COMMAND_KEYS:
        return f"has {placeholder}, which is for inputs", "write a pattern for all commands"
    if commands is None and "command" in draft.node.entries:
        text = f"has {placeholder}, and the step has no list of commands"
        return text, "write the word itself"
    return None
