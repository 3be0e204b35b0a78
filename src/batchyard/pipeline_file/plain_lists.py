"""Read a plain list of commands as a Pipeline of one step, or raise all its mistakes.

A list comes from a file, a pipe or Python. Its commands are handed out one by one, and go on after
a failure. Apart from `reading`, since a short run on this machine would notice the import of all
that reads YAML.
"""

from __future__ import annotations

import math
import os
import shlex
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from io import BytesIO, FileIO, RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, TypedDict, Unpack

from batchyard.errors import Place
from batchyard.line_files import MAX_BYTES_IN_MEMORY
from batchyard.pipeline import MAX_STEP_NAME_LENGTH, Pipeline, Step
from batchyard.pipeline_file import command_lists, key_limits
from batchyard.pipeline_file.mistakes import WHOLE_FILE, Mistakes
from batchyard.pipeline_file.text_files import read_stream, unreadable_problem
from batchyard.shard import DYNAMIC, SHARE_OUTS

_PIPELINE_SUFFIXES = (".yaml", ".yml", ".json")
#: A pipe may have no end, and all of it is read before the first command starts.
MAX_PIPE_BYTES = 256 * 2**20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_START_BYTES = 16
#: Setting that is an amount -> its unit.
_UNITS = {"memory_mib": "MiB", "timeout_s": "seconds"}
#: Name of a list without a file.
_NAME = "list"
#: Name of a single command whose program has no name that a step can have.
_COMMAND_NAME = "command"


class ListSettings(TypedDict, total=False):
    """Settings of a plain list, from the command line; None has the same meaning as no entry."""

    #: a word of shard.SHARE_OUTS; default: dynamic
    share_out: str | None
    #: whether the first command that fails ends the run
    fail_fast: bool | None
    array: int | None
    cpus: int | None
    memory_mib: int | None
    gpus: int | None
    retries: int | None
    timeout_s: int | None
    max_running: int | None
    keep_going: bool | None
    image: str | None
    #: the word of each command that is its weight, as in `${command.WORD}`; or all weights
    weight: str | Sequence[float] | None
    params: Mapping[str, str] | None


def is_command_list(path: Path) -> bool:
    """Whether the file is a plain list of commands, by the ending of its name."""
    return path.suffix.lower() not in _PIPELINE_SUFFIXES


def load_list(path: Path | None, **settings: Unpack[ListSettings]) -> Pipeline:
    """Read a file or a pipe with one command a line as a pipeline of one step.

    ``path``: None is the standard input. The step is named after the file. A list from a pipe
    belongs to the current folder. Raises PipelineFileError with all mistakes of the list and of the
    settings.
    """
    mistakes = Mistakes("standard input" if path is None else str(path))
    fields, params = _check_settings(settings, mistakes)
    commands, file = (
        (_read_stdin(params, mistakes), None)
        if path is None
        else _read_file(path, params, mistakes)
    )
    return _make_pipeline(_name_of(path), commands, fields, params, mistakes, file)


def make_list(
    commands: Iterable[str], name: str = _NAME, **settings: Unpack[ListSettings]
) -> Pipeline:
    """Return commands as the pipeline that a plain list of them would be.

    Each command is one line. Raises PipelineFileError with all mistakes.
    """
    mistakes = Mistakes("commands")
    fields, params = _check_settings(settings, mistakes)
    lines: list[str] = []
    if isinstance(commands, str):
        mistakes.add(WHOLE_FILE, f"they are the text {commands!r}", "write a list of texts")
        commands = ()
    for number, command in enumerate(commands):
        if not _is_line(command):
            mistakes.add(WHOLE_FILE, f"command {number} is {command!r}", "write one line of text")
        else:
            command_lists.check_params(command, params, WHOLE_FILE, mistakes, in_list=True)
            lines.append(command_lists.fill_params(command, params))
    if not lines and not mistakes.count:
        mistakes.add(WHOLE_FILE, "there is no command", "write at least one")
    return _make_pipeline(name, tuple(lines), fields, params, mistakes, None)


def make_command(
    words: Sequence[str],
    variables: Mapping[str, str] | None = None,
    **settings: Unpack[ListSettings],
) -> Pipeline:
    """Return one command as a pipeline of one step, named after its program.

    ``words``: a program with its arguments, or a single text for the shell. ``settings``: cpus,
    memory_mib, gpus, retries, timeout_s, image. Raises PipelineFileError with all mistakes.
    """
    mistakes = Mistakes("command")
    fields, _ = _check_settings(settings, mistakes)
    text = words[0] if len(words) == 1 else shlex.join(words)
    if not text.strip() or "\0" in text:
        mistakes.add(WHOLE_FILE, "there is no command", "write one behind --")
    warnings = mistakes.finish()
    program = Path(text.split()[0]).name
    name = key_limits.suggest_name(program, MAX_STEP_NAME_LENGTH, _COMMAND_NAME)
    step = Step(name=name, command=text, **fields)
    return override_env(Pipeline(name=name, steps=(step,), warnings=warnings), variables or {})


def override_env(pipeline: Pipeline, variables: Mapping[str, str]) -> Pipeline:
    """Return the pipeline with further environment variables of all steps.

    Raises PipelineFileError for names that a variable cannot have.
    """
    if not variables:
        return pipeline
    from batchyard.pipeline_file import key_types  # slow to import, and only variables need it

    mistakes = Mistakes("--set-env")
    for name in variables:
        if problem := key_types.env_name_problem(name):
            mistakes.add(WHOLE_FILE, f"{name}: {problem}")
    mistakes.finish()
    steps = tuple(replace(step, env={**step.env, **variables}) for step in pipeline.steps)
    return replace(pipeline, steps=steps)


def _is_line(command: object) -> bool:
    """Return whether a command can stand in a list: one line of text that can be encoded."""
    if not isinstance(command, str) or not command.strip():
        return False
    has_surrogates = any("\ud800" <= character <= "\udfff" for character in command)
    return not has_surrogates and not any(character in command for character in "\n\r\0")


def _make_pipeline(
    name: str,
    commands: Sequence[str] | None,
    fields: dict[str, Any],
    params: Mapping[str, str],
    mistakes: Mistakes,
    path: Path | None,
) -> Pipeline:
    fail_fast = fields.pop("fail_fast", False)
    fields = {"share_out": DYNAMIC, "keep_going": not fail_fast, **fields}
    if "weight" in fields:
        weights = _read_weights(fields["weight"], fields["share_out"], commands or (), mistakes)
        fields["weight"] = weights
    if fields["share_out"] != DYNAMIC:
        key_limits.warn_of_idle_children(fields.get("array"), commands, WHOLE_FILE, mistakes)
    warnings = mistakes.finish()
    name = key_limits.suggest_name(name, MAX_STEP_NAME_LENGTH, _NAME)
    step = Step(name=name, commands=commands, **fields)
    return Pipeline(
        name=name,
        steps=(step,),
        path=path,
        params=params,
        fail_fast=fail_fast,
        warnings=warnings,
    )


def _read_weights(
    weight: object, share_out: str, commands: Sequence[str], mistakes: Mistakes
) -> tuple[float, ...]:
    """Return the weight of each command, after adding mistakes."""
    from batchyard.pipeline_file import command_weights

    if share_out != DYNAMIC:
        problem = "--weight is for commands that are handed out one by one"
        mistakes.add(WHOLE_FILE, problem, "leave out --share-out, or --weight")
        return ()
    if isinstance(weight, str):
        word = weight.removeprefix("${command.").removesuffix("}")
        try:
            return tuple(command_weights.read_weights(f"${{command.{word}}}", commands))
        except command_weights.WeightError as exc:
            mistakes.add(WHOLE_FILE, exc.problem, exc.suggestion)
            return ()
    weights = tuple(weight) if isinstance(weight, Sequence) else ()
    are_numbers = all(_is_weight(number) for number in weights)
    if len(weights) != len(commands) or not are_numbers:
        problem = f"weight is not a list of {len(commands)} numbers, 0 or more"
        mistakes.add(WHOLE_FILE, problem, "write a number for each command, or a word of them")
        return ()
    return tuple(map(float, weights))


def _is_weight(number: object) -> bool:
    if not isinstance(number, int | float) or isinstance(number, bool):
        return False
    return math.isfinite(number) and number >= 0


def _check_settings(
    settings: Mapping[str, Any], mistakes: Mistakes
) -> tuple[dict[str, Any], Mapping[str, str]]:
    """Return the settings as fields of a step, and the params.

    Adds a mistake for each setting that is outside its limits.
    """
    fields = {key: value for key, value in settings.items() if value is not None}
    for key, (minimum, maximum) in key_limits.LIMITS.items():
        if key in fields and not _is_whole_number(fields[key], minimum, maximum):
            flag = "--" + key.replace("_", "-")
            suggestion = f"write {key_limits.describe_range(minimum, maximum)}"
            mistakes.add(WHOLE_FILE, f"{flag} is {fields[key]!r}", suggestion)
    for key, unit in _UNITS.items():
        if key in fields and not _is_whole_number(fields[key], 1):
            problem = f"{key} is {fields.pop(key)!r}"
            mistakes.add(WHOLE_FILE, problem, f"write a whole number of {unit}, 1 or more")
    if fields.get("share_out", DYNAMIC) not in SHARE_OUTS:
        words = ", ".join(SHARE_OUTS)
        mistakes.add(WHOLE_FILE, f"--share-out is {fields['share_out']!r}", f"write one of {words}")
    if "timeout_s" in fields:
        key_limits.warn_of_short_timeout(fields["timeout_s"], WHOLE_FILE, "--timeout", mistakes)
    params = {name: str(value) for name, value in fields.pop("params", {}).items()}
    return fields, params


def _is_whole_number(value: object, minimum: int, maximum: float = math.inf) -> bool:
    """Return whether a setting is a whole number within its limits; True is none."""
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return minimum <= value <= maximum


def _name_of(path: Path | None) -> str:
    """Return the name of the list in a file or a pipe, of which the shell names some by number."""
    return _NAME if path is None or _is_descriptor(path) else path.stem


def _is_descriptor(path: Path) -> bool:
    """Return whether the path names an open file of a process, like /dev/fd/63."""
    folder = path.parent
    is_numbered = folder.name == "fd" and folder.parts[:2] in (("/", "dev"), ("/", "proc"))
    return is_numbered or path == Path("/dev/stdin")


def _read_file(
    path: Path, params: Mapping[str, str], mistakes: Mistakes
) -> tuple[Sequence[str] | None, Path | None]:
    """Return the commands of a file or a pipe, and the path of a file that a later read finds.

    The commands are None after adding a mistake.
    """
    try:
        with path.open("rb") as file:
            # Before reading: a pipe may be removed as soon as it is open.
            status = os.fstat(file.fileno())
            is_there = stat.S_ISREG(status.st_mode) and status.st_nlink > 0
            if _is_descriptor(path) or not is_there:
                pipe = FileIO(file.fileno(), closefd=False)
                return _read_pipe(pipe, params, mistakes), None
            return _read_list(file, params, mistakes), path.absolute()
    except OSError as exc:
        mistakes.add(WHOLE_FILE, *unreadable_problem(path, exc, mistakes))
        return None, None


def _read_stdin(params: Mapping[str, str], mistakes: Mistakes) -> Sequence[str] | None:
    """Return the commands in the standard input, or None after adding a mistake."""
    if sys.stdin is None:
        mistakes.add(WHOLE_FILE, "it is closed", "write a list to it, or name a file")
        return None
    try:
        with open(os.dup(sys.stdin.fileno()), "rb", buffering=0) as pipe:
            return _read_pipe(pipe, params, mistakes)
    except OSError as exc:
        problem = f"it cannot be read: {exc.strerror or exc}"
        mistakes.add(WHOLE_FILE, problem, "write a list to it, or name a file")
        return None


def _read_pipe(
    pipe: RawIOBase, params: Mapping[str, str], mistakes: Mistakes
) -> Sequence[str] | None:
    """Return the commands that come through a pipe, or None after adding a mistake."""
    content = read_stream(pipe, MAX_BYTES_IN_MEMORY)
    if len(content) < MAX_BYTES_IN_MEMORY:
        return _read_list(BytesIO(content), params, mistakes)
    from tempfile import TemporaryFile  # slow to import, and most lists are short

    with TemporaryFile() as file:
        while content:
            file.write(content)
            if file.tell() > MAX_PIPE_BYTES:
                problem = f"more than {MAX_PIPE_BYTES // 2**20} MiB came through the pipe"
                mistakes.add(WHOLE_FILE, problem, "write the list to a file, or split it")
                return None
            content = read_stream(pipe, MAX_BYTES_IN_MEMORY)
        file.seek(0)
        return _read_list(file, params, mistakes)


def _read_list(
    file: BinaryIO, params: Mapping[str, str], mistakes: Mistakes
) -> Sequence[str] | None:
    """Return the commands of a file, or None after adding a mistake."""
    start = file.read(_START_BYTES).lstrip(_BYTE_ORDER_MARK)
    if start.startswith(b"#!"):
        suggestion = "run a list that calls it, on one line"
        mistakes.add(Place(1, 1), "this is a script, not a list of commands", suggestion)
        return None
    file.seek(0)
    return command_lists.read_commands(file, params, mistakes)
