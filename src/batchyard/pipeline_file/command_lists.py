"""Read files with one command a line, and fill in ``${params.NAME}`` in commands.

A file of a million lines takes less than a second, and its commands are not held in memory. Only
the exact form ``${params.NAME}`` is replaced; every other $ belongs to the shell. A command from a
list has no line break, so that a list can be stored as lines again.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from batchyard.errors import Place
from batchyard.line_files import MAX_BYTES_IN_MEMORY, LineFile
from batchyard.pipeline_file.mistakes import WHOLE_FILE, Mistakes, place_in
from batchyard.pipeline_file.text_files import decode_text, quote_path, unreadable_problem
from batchyard.units import quote

MAX_FILE_BYTES = 2**30
#: Lines of a long list are checked in parts of this size.
_CHUNK_BYTES = 2**18
#: Linux starts no program with more arguments than this, whatever the limits of the user are.
MAX_COMMAND_CHARS = 6 * 2**20

_PARAM = re.compile(r"\$\{params\.([A-Za-z0-9_-]+)\}")
PARAM_START = "${params."
# Fewer characters than str.strip removes: to the shell, a no-break space is part of a command. A
# byte order mark is not; it is inside a file that was joined from several.
_BLANKS = " \t\r\v\f\ufeff"


class CommandLists:
    """The command lists of a pipeline. Each file is read once, also if several steps name it."""

    def __init__(self, params: Mapping[str, str] | None, mistakes: Mistakes) -> None:
        """``params`` is None if the file's own params are invalid: then no use is checked."""
        self._params = params
        self._mistakes = mistakes
        self._lists: dict[Path, Sequence[str] | None] = {}

    def commands(self, folder: Path, path_text: str, at: Place) -> Sequence[str] | None:
        """Return the commands of the file at ``path_text``, relative to ``folder``.

        Returns None after adding a mistake: at ``at`` for a file that cannot be read, else in the
        file itself.
        """
        path = folder / path_text
        if path in self._lists:
            return self._lists[path]
        mistakes = self._mistakes.for_file(str(path))
        try:
            if _is_pipe_or_device(path):
                problem = f"commands_file {quote_path(path_text)}: this is a pipe or a device"
                self._mistakes.add(at, problem, "name a file")
                return None
            with path.open("rb") as file:
                commands = read_commands(file, self._params, mistakes)
        except OSError as exc:
            # Not stored: each step that names the file gets a mistake at its own place.
            problem, suggestion = unreadable_problem(path, exc, self._mistakes, path_text)
            self._mistakes.add(at, f"commands_file {quote_path(path_text)}: {problem}", suggestion)
            return None
        self._lists[path] = commands
        return commands


def _is_pipe_or_device(path: Path) -> bool:
    """Return whether a read may never end. Raises OSError if there is no such file."""
    mode = path.stat().st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def read_commands(
    file: BinaryIO, params: Mapping[str, str] | None, mistakes: Mistakes
) -> Sequence[str] | None:
    """Return the commands of a file as ``parse_commands`` does. A long list stays on the disk."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size > MAX_FILE_BYTES:
        problem = f"the file is larger than {MAX_FILE_BYTES // 2**20:,} MiB"
        mistakes.add(WHOLE_FILE, problem, "split it")
        return None
    if size > MAX_BYTES_IN_MEMORY:
        commands = _stream_commands(file, params)
        if commands is not None:
            return commands
        file.seek(0)
    text = decode_text(file.read(), mistakes)
    return None if text is None else parse_commands(text, params, mistakes)


def _stream_commands(file: BinaryIO, params: Mapping[str, str] | None) -> LineFile | None:
    """Return the commands of a large file, in a temporary file.

    None if there is a mistake in the file, or no command; ``parse_commands`` finds and explains it.
    """
    from tempfile import TemporaryFile  # slow to import, and most lists are short

    with TemporaryFile() as target:
        while chunk := file.readlines(_CHUNK_BYTES):
            text = _parse_chunk(chunk, params)
            if text is None:
                return None
            target.write(text.encode("utf-8"))
        return LineFile(target) if target.tell() else None


def _parse_chunk(chunk: list[bytes], params: Mapping[str, str] | None) -> str | None:
    """Return the commands of some lines as text, each with a line feed; None for a mistake."""
    if max(map(len, chunk)) > MAX_COMMAND_CHARS:
        return None
    try:
        text = b"".join(chunk).decode("utf-8")
    except UnicodeDecodeError:
        return None
    commands = _select_commands([line.strip(_BLANKS) for line in text.split("\n")])
    if "\0" in text or ("\r" in text and _stray_return(commands)):
        return None
    joined = "".join(f"{command}\n" for command in commands)
    if params is None or PARAM_START not in joined:
        return joined
    if any(_param_problems(joined, params, Mistakes(""), in_list=True)):
        return None
    return fill_params(joined, params)


def parse_commands(
    text: str, params: Mapping[str, str] | None, mistakes: Mistakes
) -> tuple[str, ...] | None:
    """Return the commands of a file's text with params filled in, or None after adding a mistake.

    Blank lines and lines that begin with # are skipped.
    """
    if "\0" in text:
        mistakes.add(place_in(text, text.index("\0")), "a NUL byte in the file", "remove it")
        return None
    if (long := _long_line(text)) is not None:
        problem = f"the line is longer than {MAX_COMMAND_CHARS // 2**20} MiB"
        mistakes.add(long, problem, "no system can start such a command: put it into a script")
        return None
    lines = [line.strip(_BLANKS) for line in text.split("\n")]
    commands = _select_commands(lines)
    if not commands:
        mistakes.add(WHOLE_FILE, "there is no command in the file", "write one command a line")
        return None
    if "\r" in text and (stray := _stray_return(lines)):
        mistakes.add(stray, "a carriage return inside a line", "end lines with LF or CR LF")
        return None
    if params is None or PARAM_START not in text:
        return tuple(commands)
    # One pass over the joined text is several times faster than a million passes over lines.
    joined = "\n".join(commands)
    for name, problem, suggestion in _param_problems(joined, params, mistakes, in_list=True):
        # Only at its first use: a generated list has the same mistake on every line.
        mistakes.add(_first_use(text, "${params." + name + "}"), problem, suggestion)
    return tuple(fill_params(joined, params).split("\n"))


def _select_commands(lines: list[str]) -> list[str]:
    return [line for line in lines if line and line[0] != "#"]


def fill_params(command: str, params: Mapping[str, str]) -> str:
    """Return the command with ``${params.NAME}`` replaced. An unknown name stays as it is."""
    if PARAM_START not in command:
        return command
    return _PARAM.sub(lambda match: params.get(match[1], match[0]), command)


def check_params(
    command: str, params: Mapping[str, str], at: Place, mistakes: Mistakes, *, in_list: bool
) -> None:
    """Add a mistake for each ``${params.NAME}`` of the command that cannot be filled in.

    ``in_list``: the command belongs to a list and must stay on one line.
    """
    for _, problem, suggestion in _param_problems(command, params, mistakes, in_list):
        mistakes.add(at, problem, suggestion)


def _param_problems(
    commands: str, params: Mapping[str, str], mistakes: Mistakes, in_list: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield (name, problem, suggestion) for the params of the commands that cannot be used."""
    for name in dict.fromkeys(_PARAM.findall(commands)):
        if name not in params:
            names = "the parameters are " + ", ".join(list(params)[:20])
            otherwise = names if params else "write it under params"
            suggestion = mistakes.did_you_mean(name, params, otherwise)
            yield name, f"there is no parameter {quote(name)}", suggestion
        elif in_list and ("\n" in params[name] or "\r" in params[name]):
            problem = f"the parameter {quote(name)} has several lines"
            yield name, problem, "write it as one line to use it in a list"


def _long_line(text: str) -> Place | None:
    """Return the place of the first line that is too long for a command."""
    start = 0
    while len(text) - start > MAX_COMMAND_CHARS:
        # The last line break within the limit, so that a long list takes few steps.
        end = text.rfind("\n", start, start + MAX_COMMAND_CHARS + 1)
        if end < 0:
            return Place(text.count("\n", 0, start) + 1, 1)
        start = end + 1
    return None


def _stray_return(lines: list[str]) -> Place | None:
    """Return the place of the first carriage return inside a command."""
    for number, line in enumerate(lines, 1):
        if "\r" in line and line[0] != "#":
            return Place(number, line.index("\r") + 1)
    return None


def _first_use(text: str, placeholder: str) -> Place:
    for number, line in enumerate(text.split("\n"), 1):
        if placeholder in line and not line.lstrip(_BLANKS).startswith("#"):
            return Place(number, line.index(placeholder) + 1)
    return WHOLE_FILE
