"""A pipeline file, or a plain list of commands, becomes a Pipeline: or a complaint with every mistake in it.

    file -> yaml_nodes (a tree with places) -> file_keys (each value alone) -> here (values together)

Nothing outside the files that the user named is read, and nothing is run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from batchyard import yaml_positions
from batchyard.pipeline import MAX_NAME_LENGTH, MAX_STEP_NAME_LENGTH, Need, Pipeline, Step
from batchyard.pipeline_file import command_lists, file_keys, key_types, step_graph, yaml_nodes
from batchyard.pipeline_file.command_lists import CommandLists
from batchyard.pipeline_file.file_keys import StepDraft
from batchyard.pipeline_file.mistakes import WHOLE_FILE, Notes
from batchyard.pipeline_file.value_types import (
    check_mapping,
    describe_range,
    is_missing,
    is_unicode,
)
from batchyard.units import quoted
from batchyard.yaml_positions import Place

MAX_PIPELINE_FILE_BYTES = 64 * 2**20

_PIPELINE_SUFFIXES = (".yaml", ".yml", ".json")
#: JSON writes an emoji as two halves, which YAML's escapes cannot
_SURROGATE_PAIR = re.compile(
    r"(?<!\\)((?:\\\\)*)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE
)


class ListSettings(TypedDict, total=False):
    """What the command line can say about a plain list; None is the same as left out."""

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
    """Whether the file is a plain list of commands, by its name."""
    return path.suffix.lower() not in _PIPELINE_SUFFIXES


def load(path: Path, params: Mapping[str, str] | None = None) -> Pipeline:
    """Reads a pipeline file; ``params`` go over the file's. Raises PipelineFileError, with all of them."""
    notes = Notes(str(path))
    root = _root(path, notes)
    values = check_mapping(file_keys.FILE_KEYS, root, "the file", notes) if root else None
    if root is None or values is None:
        notes.settle()
        raise AssertionError(f"{path} was not read, and no mistake was noted")
    _check_presence(root, path, notes)
    effective = _effective_params(root, values, params or {}, notes)
    drafts: tuple[StepDraft, ...] = values.get("steps", ())
    lists = CommandLists(effective, notes)
    work = [_work(draft, path, effective, lists, notes) for draft in drafts]
    step_graph.check(drafts, notes)
    for draft in drafts:
        _check_secrets(draft, values.get("env", {}), notes)
    warnings = notes.settle()
    sizes = {draft.name: step_graph.size_of(draft) for draft in drafts}
    return Pipeline(
        name=values["name"],
        steps=tuple(
            _step(draft, done, values, sizes) for draft, done in zip(drafts, work, strict=True)
        ),
        path=path.absolute(),
        workspace=values.get("workspace"),
        params=effective or {},
        fail_fast=values.get("fail_fast", False),
        warnings=warnings,
    )


def load_list(path: Path, **settings: Unpack[ListSettings]) -> Pipeline:
    """Reads a file with one command a line as a pipeline of one step, named after the file."""
    notes = Notes(str(path))
    given: dict[str, Any] = {key: value for key, value in settings.items() if value is not None}
    params = given.pop("params", {})
    for key, (least, most) in key_types.LIMITS.items():
        if key in given and not least <= given[key] <= most:
            flag = "--" + key.replace("_", "-")
            notes.wrong(
                WHOLE_FILE, f"{flag} is {given[key]}", f"write {describe_range(least, most)}"
            )
    if "timeout_s" in given:
        key_types.warn_of_short_timeout(given["timeout_s"], WHOLE_FILE, "--timeout", notes)
    commands = None
    try:
        text = command_lists.read_text(path, notes, command_lists.MAX_FILE_BYTES)
        if text is not None and text.startswith("#!"):
            notes.wrong(
                Place(1, 1),
                "this is a script, not a list of commands",
                "run a list that calls it, on one line",
            )
        elif text is not None:
            commands = command_lists.commands_in(text, params, notes)
    except OSError as exc:
        notes.wrong(WHOLE_FILE, *command_lists.why_unreadable(path, exc, notes))
    _warn_of_idle_children(given.get("array"), commands, WHOLE_FILE, notes)
    warnings = notes.settle()
    name = key_types.suggest_name(path.stem, MAX_STEP_NAME_LENGTH, "list")
    step = Step(name=name, commands=commands, **given)
    return Pipeline(
        name=name, steps=(step,), path=path.absolute(), params=params, warnings=warnings
    )


def _root(path: Path, notes: Notes) -> yaml_positions.Mapping | None:
    try:
        text = command_lists.read_text(path, notes, MAX_PIPELINE_FILE_BYTES)
    except OSError as exc:
        notes.wrong(WHOLE_FILE, *command_lists.why_unreadable(path, exc, notes))
        return None
    if text is None:
        return None
    if path.suffix.lower() == ".json":
        text = _SURROGATE_PAIR.sub(_one_escape, text)
    before = notes.count
    node = yaml_nodes.parse(text, notes)
    if isinstance(node, yaml_positions.Mapping):
        return node
    if notes.count > before:
        return None
    if node is None or (
        isinstance(node, yaml_positions.Scalar) and node.kind == yaml_positions.NOTHING
    ):
        notes.wrong(
            WHOLE_FILE,
            "the file is empty",
            "write name: and steps:, or begin with `batchyard init`",
        )
    else:
        kind = "a list" if isinstance(node, yaml_positions.Sequence) else "plain text"
        instead = (
            "write name: and steps:, or give a plain list of commands a name that ends in .txt"
        )
        notes.wrong(node, f"the file is {kind}, not a pipeline", instead)
    return None


def _one_escape(match: re.Match[str]) -> str:
    high, low = int(match[2], 16), int(match[3], 16)
    return f"{match[1]}\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08X}"


def _check_presence(root: yaml_positions.Mapping, path: Path, notes: Notes) -> None:
    if is_missing(("name",), file_keys.FILE_KEYS, root, notes):
        folder = path.absolute().parent.name
        name = key_types.suggest_name(folder, MAX_NAME_LENGTH, "pipeline")
        notes.wrong(root, "the file has no name", f"write name: {name}")
    if is_missing(("steps",), file_keys.FILE_KEYS, root, notes):
        notes.wrong(root, "the file has no steps", "write steps: and a list of them")


def _effective_params(
    root: yaml_positions.Mapping,
    values: Mapping[str, Any],
    overrides: Mapping[str, str],
    notes: Notes,
) -> dict[str, str] | None:
    """The file's with the command line's over them; None where the file's cannot be known."""
    if "params" in root.entries and "params" not in values:
        return None
    params: dict[str, str] = values.get("params", {})
    known = "the parameters are " + ", ".join(params) if params else "the file has no params"
    for name, value in overrides.items():
        if name not in params:
            what = f"--set: there is no parameter {quoted(name)}"
            notes.wrong(WHOLE_FILE, what, notes.did_you_mean(name, params, otherwise=known))
        elif "\0" in value or not is_unicode(value):
            notes.wrong(
                WHOLE_FILE, f"--set: the value of {quoted(name)} is not UTF-8 text", "write text"
            )
    return {**params, **overrides}


def _work(
    draft: StepDraft, path: Path, params: dict[str, str] | None, lists: CommandLists, notes: Notes
) -> dict[str, Any]:
    """The step's ``command`` or ``commands``, filled in; nothing after a mistake."""
    written = [key for key in file_keys.WORK_KEYS if key in draft.node.entries]
    called = f"step {quoted(draft.name)}" if draft.name else "the step"
    if is_missing(("name",), file_keys.STEP_KEYS, draft.node, notes):
        notes.wrong(draft.node, "the step has no name", "write name: and a word")
    if is_missing(file_keys.WORK_KEYS, file_keys.STEP_KEYS, draft.node, notes):
        notes.wrong(
            draft.node,
            f"{called} has nothing to run",
            "write command:, commands: or commands_file:",
        )
    for key in written[1:]:
        what = f"{called} has both {written[0]} and {key}"
        notes.wrong(draft.node.entries[key][0], what, "keep one of them")
    work: dict[str, Any] = {}
    for key in written:
        value = draft.values.get(key)
        node = draft.node_of(key)
        if value is None:
            continue
        if key == "commands_file":
            work["commands"] = lists.commands(path.parent, value, node)
        else:
            _check_params(node, params, notes)
            work[key] = _fill(value, params or {})
    _warn_of_idle_children(
        draft.values.get("array"), work.get("commands"), draft.node_of("array"), notes
    )
    return work


def _check_params(node: yaml_positions.Node, params: dict[str, str] | None, notes: Notes) -> None:
    if params is None:
        return
    items = node.items if isinstance(node, yaml_positions.Sequence) else [node]
    for item in items:
        if isinstance(item, yaml_positions.Scalar):
            in_list = isinstance(node, yaml_positions.Sequence)
            command_lists.check_params(item.text, params, item, notes, in_list=in_list)


def _fill(value: str | tuple[str, ...], params: Mapping[str, str]) -> str | tuple[str, ...]:
    if isinstance(value, str):
        return command_lists.fill(value, params)
    return tuple(command_lists.fill(command, params) for command in value)


def _warn_of_idle_children(
    array: int | None, commands: tuple[str, ...] | None, at: Place, notes: Notes
) -> None:
    if array and commands and array > len(commands):
        what = (
            f"array is {array:,} for {_count(len(commands), 'command')}:"
            f" {_count(array - len(commands), 'child', 'children')} will have nothing to do"
        )
        notes.warn(at, what, f"write at most {len(commands)}")


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _check_secrets(draft: StepDraft, env: Mapping[str, str], notes: Notes) -> None:
    both = {**env, **draft.values.get("env", {})}.keys() & draft.values.get("secrets", {}).keys()
    secrets = draft.node_of("secrets")
    for name in sorted(both):
        if isinstance(secrets, yaml_positions.Mapping):
            key = secrets.entries[name][0]
            notes.wrong(key, f"{quoted(name)} is both in env and in secrets", "keep one of them")


def _step(
    draft: StepDraft,
    work: Mapping[str, Any],
    file: Mapping[str, Any],
    sizes: Mapping[str, int | None],
) -> Step:
    fields: dict[str, Any] = {
        "image": file.get("image"),
        **file.get("defaults", {}),
        **draft.values,
    }
    fields.pop("commands_file", None)
    fields.update(work)
    fields["env"] = {**file.get("env", {}), **draft.values.get("env", {})}
    fields["needs"] = tuple(
        _plain_if_single(at.need, sizes) for at in draft.values.get("needs", ())
    )
    return Step(**fields)


def _plain_if_single(need: Need, sizes: Mapping[str, int | None]) -> Need:
    # Waiting for child 0 of an only child is waiting for the step; AWS knows no N_TO_N of single jobs.
    return replace(need, each=False) if sizes[need.step] == 1 else need
