"""Read a pipeline file as a Pipeline, or raise all its mistakes.

    file -> yaml_parsing (nodes with places) -> file_keys (single values) -> here (all values)

Only the files that the user names are read, and nothing is executed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from batchyard import yaml_positions
from batchyard.errors import Place
from batchyard.pipeline import MAX_NAME_LENGTH, Need, Pipeline, Step
from batchyard.pipeline_file import (
    command_lists,
    file_patterns,
    key_limits,
    step_graph,
    weights,
    yaml_parsing,
)
from batchyard.pipeline_file.command_lists import CommandLists
from batchyard.pipeline_file.file_keys import FILE_KEYS, STEP_KEYS, WORK_KEYS, StepDraft
from batchyard.pipeline_file.mistakes import WHOLE_FILE, Mistakes
from batchyard.pipeline_file.text_files import read_text, unreadable_problem
from batchyard.pipeline_file.value_types import (
    check_mapping,
    is_missing,
    is_unicode,
)
from batchyard.shard import DYNAMIC
from batchyard.units import quote

MAX_PIPELINE_FILE_BYTES = 64 * 2**20

#: JSON escapes an emoji as two halves, which YAML does not accept.
_SURROGATE_PAIR = re.compile(
    r"(?<!\\)((?:\\\\)*)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE
)


def load(path: Path, params: Mapping[str, str] | None = None) -> Pipeline:
    """Read a pipeline file. ``params`` override those of the file.

    Raises PipelineFileError with all mistakes of the file and of the lists it names.
    """
    mistakes = Mistakes(str(path))
    return _load(_read_file(path, mistakes), path, params, mistakes)


def load_text(text: str, folder: Path) -> Pipeline:
    """Return the pipeline of a file's text, of a file that would be in ``folder``.

    Raises PipelineFileError with all mistakes, at their places in the text.
    """
    path = folder / "<pipeline>"
    return replace(_load(text, path, None, Mistakes(path.name)), path=None)


def _load(
    text: str | None, path: Path, params: Mapping[str, str] | None, mistakes: Mistakes
) -> Pipeline:
    """Return the pipeline of a text; None is a file that could not be read, with a mistake."""
    root = None if text is None else _parse_root(text, mistakes)
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
        spot=values.get("spot"),
        max_cost_usd=values.get("max_cost_usd"),
        warnings=warnings,
        resource_places=_find_resource_places(drafts, path, root),
    )


def _find_resource_places(
    drafts: Sequence[StepDraft], path: Path, root: yaml_positions.Mapping
) -> dict[tuple[str, str], str]:
    """Return (step, key) -> `FILE:LINE:COLUMN` of what each step requests."""
    return {
        (draft.name, key): f"{path}:{_place_of(draft, key, root)}"
        for draft in drafts
        for key in ("cpus", "memory", "gpus")
    }


def _place_of(draft: StepDraft, key: str, root: yaml_positions.Mapping) -> str:
    """Return `LINE:COLUMN` of a key: in the step, else in `defaults`, else the step itself."""
    defaults = root.get("defaults")
    node = draft.node.get(key) or (defaults.get(key) if defaults else None) or draft.node
    return f"{node.line}:{node.column}"


def _read_file(path: Path, mistakes: Mistakes) -> str | None:
    """Return the text of a pipeline file as YAML, or None after adding a mistake."""
    try:
        text = read_text(path, mistakes, MAX_PIPELINE_FILE_BYTES)
    except OSError as exc:
        mistakes.add(WHOLE_FILE, *unreadable_problem(path, exc, mistakes))
        return None
    if text is not None and path.suffix.lower() == ".json":
        return _SURROGATE_PAIR.sub(_join_surrogates, text)
    return text


def _parse_root(text: str, mistakes: Mistakes) -> yaml_positions.Mapping | None:
    """Return the mapping that a pipeline file consists of, or None after adding a mistake."""
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
        name = key_limits.suggest_name(folder, MAX_NAME_LENGTH, "pipeline")
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
    """Return what the step runs and its patterns of files, with params filled in.

    The result has ``command`` or ``commands``; neither after a mistake.
    """
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
    if draft.values.get("share_out") != DYNAMIC:
        key_limits.warn_of_idle_children(
            draft.values.get("array"), work.get("commands"), draft.node_of("array"), mistakes
        )
    work |= weights.read_weights(draft, work.get("commands"), mistakes)
    return work | file_patterns.read_patterns(draft, work.get("commands"), params, mistakes)


def _check_step_keys(draft: StepDraft, mistakes: Mistakes) -> None:
    """Add a mistake for a step without a name, or without exactly one of WORK_KEYS."""
    label = f"step {quote(draft.name)}" if draft.name else "the step"
    if is_missing(("name",), STEP_KEYS, draft.node, mistakes):
        mistakes.add(draft.node, "the step has no name", "write name: and a word")
    if is_missing(WORK_KEYS, STEP_KEYS, draft.node, mistakes):
        suggestion = "write command:, commands: or commands_file:"
        mistakes.add(draft.node, f"{label} has nothing to run", suggestion)
    if "share_out" in draft.node.entries and "command" in draft.node.entries:
        key_node = draft.node.entries["share_out"][0]
        mistakes.add(key_node, "share_out is for a list of commands", "remove it")
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
