"""Read a pipeline file, or a plain list of commands, as a Pipeline, or raise all its mistakes.

    file -> yaml_parsing (nodes with places) -> file_keys (single values) -> here (all values)

Only the files that the user names are read, and nothing is executed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from batchyard import yaml_positions
from batchyard.pipeline import MAX_NAME_LENGTH, MAX_STEP_NAME_LENGTH, Need, Pipeline, Step
from batchyard.pipeline_file import command_lists, key_types, step_graph, yaml_parsing
from batchyard.pipeline_file.command_lists import CommandLists
from batchyard.pipeline_file.file_keys import FILE_KEYS, STEP_KEYS, WORK_KEYS, StepDraft
from batchyard.pipeline_file.mistakes import WHOLE_FILE, Mistakes
from batchyard.pipeline_file.text_files import read_text, unreadable_problem
from batchyard.pipeline_file.value_types import (
    check_mapping,
    describe_range,
    is_missing,
    is_unicode,
)
from batchyard.units import pluralize, quote
from batchyard.yaml_positions import Place

MAX_PIPELINE_FILE_BYTES = 64 * 2**20

_PIPELINE_SUFFIXES = (".yaml", ".yml", ".json")
#: JSON escapes an emoji as two halves, which YAML does not accept.
_SURROGATE_PAIR = re.compile(
    r"(?<!\\)((?:\\\\)*)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE
)


class ListSettings(TypedDict, total=False):
    """Settings of a plain list, from the command line; None has the same meaning as no entry."""

    array: int | None
    cpus: int | None
    memory_mib: int | None
    gpus: int | None
    retries: int | None
    timeout_s: int | None
    max_running: int | None
    keep_going: bool | None
    image: str | None
    params: Mapping[str, str] | None


def is_command_list(path: Path) -> bool:
    """Whether the file is a plain list of commands, by the ending of its name."""
    return path.suffix.lower() not in _PIPELINE_SUFFIXES


def load(path: Path, params: Mapping[str, str] | None = None) -> Pipeline:
    """Read a pipeline file. ``params`` override those of the file.

    Raises PipelineFileError with all mistakes of the file and of the lists it names.
    """
    mistakes = Mistakes(str(path))
    root = _read_root(path, mistakes)
    values = check_mapping(FILE_KEYS, root, "the file", mistakes) if root else None
    if root is None or values is None:
        mistakes.finish()
        raise AssertionError(f"{path} was not read, and no mistake was added")
    _check_required_keys(root, path, mistakes)
    effective_params = _override_params(root, values, params or {}, mistakes)
    drafts: tuple[StepDraft, ...] = values.get("steps", ())
    lists = CommandLists(effective_params, mistakes)
    work_of_steps = [_read_work(draft, path, effective_params, lists, mistakes) for draft in drafts]
    step_graph.check(drafts, mistakes)
    for draft in drafts:
        _check_secrets(draft, values.get("env", {}), mistakes)
    warnings = mistakes.finish()
    sizes = {draft.name: step_graph.size_of(draft) for draft in drafts}
    return Pipeline(
        name=values["name"],
        steps=tuple(
            _make_step(draft, work, values, sizes)
            for draft, work in zip(drafts, work_of_steps, strict=True)
        ),
        path=path.absolute(),
        workspace=values.get("workspace"),
        params=effective_params or {},
        fail_fast=values.get("fail_fast", False),
        warnings=warnings,
    )


def load_list(path: Path, **settings: Unpack[ListSettings]) -> Pipeline:
    """Read a file with one command a line as a pipeline of one step, named after the file.

    Raises PipelineFileError with all mistakes of the file and of the settings.
    """
    mistakes = Mistakes(str(path))
    fields: dict[str, Any] = {key: value for key, value in settings.items() if value is not None}
    params = fields.pop("params", {})
    _check_settings(fields, mistakes)
    commands = _read_list(path, params, mistakes)
    _warn_of_idle_children(fields.get("array"), commands, WHOLE_FILE, mistakes)
    warnings = mistakes.finish()
    name = key_types.suggest_name(path.stem, MAX_STEP_NAME_LENGTH, "list")
    step = Step(name=name, commands=commands, **fields)
    return Pipeline(
        name=name, steps=(step,), path=path.absolute(), params=params, warnings=warnings
    )


def _check_settings(fields: Mapping[str, Any], mistakes: Mistakes) -> None:
    """Add a mistake for each setting of a list that is outside its limits."""
    for key, (minimum, maximum) in key_types.LIMITS.items():
        if key in fields and not minimum <= fields[key] <= maximum:
            flag = "--" + key.replace("_", "-")
            suggestion = f"write {describe_range(minimum, maximum)}"
            mistakes.add(WHOLE_FILE, f"{flag} is {fields[key]}", suggestion)
    if "timeout_s" in fields:
        key_types.warn_of_short_timeout(fields["timeout_s"], WHOLE_FILE, "--timeout", mistakes)


def _read_list(path: Path, params: Mapping[str, str], mistakes: Mistakes) -> tuple[str, ...] | None:
    try:
        text = read_text(path, mistakes, command_lists.MAX_FILE_BYTES)
    except OSError as exc:
        mistakes.add(WHOLE_FILE, *unreadable_problem(path, exc, mistakes))
        return None
    if text is None:
        return None
    if text.startswith("#!"):
        suggestion = "run a list that calls it, on one line"
        mistakes.add(Place(1, 1), "this is a script, not a list of commands", suggestion)
        return None
    return command_lists.parse_commands(text, params, mistakes)


def _read_root(path: Path, mistakes: Mistakes) -> yaml_positions.Mapping | None:
    """Return the mapping that a pipeline file consists of, or None after adding a mistake."""
    try:
        text = read_text(path, mistakes, MAX_PIPELINE_FILE_BYTES)
    except OSError as exc:
        mistakes.add(WHOLE_FILE, *unreadable_problem(path, exc, mistakes))
        return None
    if text is None:
        return None
    if path.suffix.lower() == ".json":
        text = _SURROGATE_PAIR.sub(_join_surrogates, text)
    count = mistakes.count
    node = yaml_parsing.parse(text, mistakes)
    if isinstance(node, yaml_positions.Mapping):
        return node
    if mistakes.count == count:
        mistakes.add(*_no_mapping_problem(node))
    return None


def _no_mapping_problem(node: yaml_positions.Node | None) -> tuple[Place, str, str]:
    """Return place, problem and suggestion for a file whose content is not a mapping."""
    kind = node.kind if isinstance(node, yaml_positions.Scalar) else ""
    if node is None or kind == yaml_positions.NOTHING:
        suggestion = "write name: and steps:, or begin with `batchyard init`"
        return WHOLE_FILE, "the file is empty", suggestion
    content = "a list" if isinstance(node, yaml_positions.Sequence) else "plain text"
    suggestion = "write name: and steps:, or give a plain list of commands a name that ends in .txt"
    return node, f"the file is {content}, not a pipeline", suggestion


def _join_surrogates(match: re.Match[str]) -> str:
    high, low = int(match[2], 16), int(match[3], 16)
    return f"{match[1]}\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08X}"


def _check_required_keys(root: yaml_positions.Mapping, path: Path, mistakes: Mistakes) -> None:
    if is_missing(("name",), FILE_KEYS, root, mistakes):
        folder = path.absolute().parent.name
        name = key_types.suggest_name(folder, MAX_NAME_LENGTH, "pipeline")
        mistakes.add(root, "the file has no name", f"write name: {name}")
    if is_missing(("steps",), FILE_KEYS, root, mistakes):
        mistakes.add(root, "the file has no steps", "write steps: and a list of them")


def _override_params(
    root: yaml_positions.Mapping,
    values: Mapping[str, Any],
    overrides: Mapping[str, str],
    mistakes: Mistakes,
) -> dict[str, str] | None:
    """Return the file's params with the overrides; None if the file's params are invalid."""
    if "params" in root.entries and "params" not in values:
        return None
    params: dict[str, str] = values.get("params", {})
    names = "the parameters are " + ", ".join(params) if params else "the file has no params"
    for name, value in overrides.items():
        if name not in params:
            suggestion = mistakes.did_you_mean(name, params, otherwise=names)
            mistakes.add(WHOLE_FILE, f"--set: there is no parameter {quote(name)}", suggestion)
        elif "\0" in value or not is_unicode(value):
            problem = f"--set: the value of {quote(name)} is not UTF-8 text"
            mistakes.add(WHOLE_FILE, problem, "write text")
    return {**params, **overrides}


def _read_work(
    draft: StepDraft,
    path: Path,
    params: dict[str, str] | None,
    lists: CommandLists,
    mistakes: Mistakes,
) -> dict[str, Any]:
    """Return the step's ``command`` or ``commands`` with params filled in; {} after a mistake."""
    _check_step_keys(draft, mistakes)
    work: dict[str, Any] = {}
    for key in WORK_KEYS:
        value = draft.values.get(key)
        if value is None:
            continue
        node = draft.node_of(key)
        if key == "commands_file":
            work["commands"] = lists.commands(path.parent, value, node)
        else:
            _check_params(node, params, mistakes)
            work[key] = _fill_params(value, params or {})
    _warn_of_idle_children(
        draft.values.get("array"), work.get("commands"), draft.node_of("array"), mistakes
    )
    return work


def _check_step_keys(draft: StepDraft, mistakes: Mistakes) -> None:
    """Add a mistake for a step without a name, or without exactly one of WORK_KEYS."""
    label = f"step {quote(draft.name)}" if draft.name else "the step"
    if is_missing(("name",), STEP_KEYS, draft.node, mistakes):
        mistakes.add(draft.node, "the step has no name", "write name: and a word")
    if is_missing(WORK_KEYS, STEP_KEYS, draft.node, mistakes):
        suggestion = "write command:, commands: or commands_file:"
        mistakes.add(draft.node, f"{label} has nothing to run", suggestion)
    work_keys = [key for key in WORK_KEYS if key in draft.node.entries]
    for key in work_keys[1:]:
        problem = f"{label} has both {work_keys[0]} and {key}"
        mistakes.add(draft.node.entries[key][0], problem, "keep one of them")


def _check_params(
    node: yaml_positions.Node, params: dict[str, str] | None, mistakes: Mistakes
) -> None:
    if params is None:
        return
    in_list = isinstance(node, yaml_positions.Sequence)
    for item in node.items if in_list else [node]:
        if isinstance(item, yaml_positions.Scalar):
            command_lists.check_params(item.text, params, item, mistakes, in_list=in_list)


def _fill_params(work: str | tuple[str, ...], params: Mapping[str, str]) -> str | tuple[str, ...]:
    if isinstance(work, str):
        return command_lists.fill_params(work, params)
    return tuple(command_lists.fill_params(command, params) for command in work)


def _warn_of_idle_children(
    array: int | None, commands: tuple[str, ...] | None, at: Place, mistakes: Mistakes
) -> None:
    if array and commands and array > len(commands):
        problem = (
            f"array is {array:,} for {pluralize(len(commands), 'command')}:"
            f" {pluralize(array - len(commands), 'child', 'children')} will have nothing to do"
        )
        mistakes.warn(at, problem, f"write at most {len(commands)}")


def _check_secrets(draft: StepDraft, file_env: Mapping[str, str], mistakes: Mistakes) -> None:
    """Add a mistake for each name that is both in ``env`` and in ``secrets``."""
    env = {**file_env, **draft.values.get("env", {})}
    secrets = draft.node_of("secrets")
    for name in sorted(env.keys() & draft.values.get("secrets", {}).keys()):
        if isinstance(secrets, yaml_positions.Mapping):
            key = secrets.entries[name][0]
            mistakes.add(key, f"{quote(name)} is both in env and in secrets", "keep one of them")


def _make_step(
    draft: StepDraft,
    work: Mapping[str, Any],
    file: Mapping[str, Any],
    sizes: Mapping[str, int | None],
) -> Step:
    """Return the step with the file's values and defaults applied."""
    fields: dict[str, Any] = {
        "image": file.get("image"),
        **file.get("defaults", {}),
        **draft.values,
    }
    fields.pop("commands_file", None)
    fields.update(work)
    fields["env"] = {**file.get("env", {}), **draft.values.get("env", {})}
    fields["needs"] = tuple(
        _drop_each_of_single(edge.need, sizes) for edge in draft.values.get("needs", ())
    )
    return Step(**fields)


def _drop_each_of_single(need: Need, sizes: Mapping[str, int | None]) -> Need:
    # To wait for child 0 of a single job is to wait for the job. AWS has N_TO_N only for arrays.
    return replace(need, each=False) if sizes[need.step] == 1 else need
