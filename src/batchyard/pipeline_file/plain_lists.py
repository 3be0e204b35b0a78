"""Read a plain list of commands as a Pipeline of one step, or raise all its mistakes.

Apart from `reading`, since a short run on this machine would notice the import of all that reads
YAML.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict, Unpack

from batchyard.errors import Place
from batchyard.pipeline import MAX_STEP_NAME_LENGTH, Pipeline, Step
from batchyard.pipeline_file import command_lists, key_limits
from batchyard.pipeline_file.mistakes import WHOLE_FILE, Mistakes
from batchyard.pipeline_file.text_files import read_text, unreadable_problem

_PIPELINE_SUFFIXES = (".yaml", ".yml", ".json")


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


def load_list(path: Path, **settings: Unpack[ListSettings]) -> Pipeline:
    """Read a file with one command a line as a pipeline of one step, named after the file.

    Raises PipelineFileError with all mistakes of the file and of the settings.
    """
    mistakes = Mistakes(str(path))
    fields: dict[str, Any] = {key: value for key, value in settings.items() if value is not None}
    params = fields.pop("params", {})
    _check_settings(fields, mistakes)
    commands = _read_list(path, params, mistakes)
    key_limits.warn_of_idle_children(fields.get("array"), commands, WHOLE_FILE, mistakes)
    warnings = mistakes.finish()
    name = key_limits.suggest_name(path.stem, MAX_STEP_NAME_LENGTH, "list")
    step = Step(name=name, commands=commands, **fields)
    return Pipeline(
        name=name, steps=(step,), path=path.absolute(), params=params, warnings=warnings
    )


def _check_settings(fields: Mapping[str, Any], mistakes: Mistakes) -> None:
    """Add a mistake for each setting of a list that is outside its limits."""
    for key, (minimum, maximum) in key_limits.LIMITS.items():
        if key in fields and not minimum <= fields[key] <= maximum:
            flag = "--" + key.replace("_", "-")
            suggestion = f"write {key_limits.describe_range(minimum, maximum)}"
            mistakes.add(WHOLE_FILE, f"{flag} is {fields[key]}", suggestion)
    if "timeout_s" in fields:
        key_limits.warn_of_short_timeout(fields["timeout_s"], WHOLE_FILE, "--timeout", mistakes)


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
