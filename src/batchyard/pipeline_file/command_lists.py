"""Files with one command a line, and ``${params.NAME}`` in commands. A million lines take under a second.

Only the exact form ``${params.NAME}`` is ours; everything else with a $ is the shell's. Commands come out
without line breaks, so that a list can be kept as lines again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from batchyard.pipeline_file.mistakes import WHOLE_FILE, Notes, place_in
from batchyard.units import quoted
from batchyard.yaml_positions import Place

MAX_FILE_BYTES = 2**30

_PARAM = re.compile(r"\$\{params\.([A-Za-z0-9_-]+)\}")
_PARAM_BEGINS = "${params."
# Not str.strip's own idea of blanks: a no-break space is part of a command, to the shell as well. But a byte
# order mark, which is in the middle where files were joined, is none.
_BLANKS = " \t\r\v\f\ufeff"


class CommandLists:
    """Reads each commands file once, however many steps share it; ``params`` is None where unknown."""

    def __init__(self, params: Mapping[str, str] | None, notes: Notes) -> None:
        self._params = params
        self._notes = notes
        self._read: dict[Path, tuple[str, ...] | None] = {}

    def commands(self, folder: Path, written: str, at: Place) -> tuple[str, ...] | None:
        """None after the mistake was noted: a missing file at ``at``, one in its text in the file itself."""
        path = folder / written
        if path not in self._read:
            self._read[path] = None
            try:
                text = read_text(path, self._notes.beside(str(path)), MAX_FILE_BYTES)
            except OSError as exc:
                what, instead = why_unreadable(path, exc, self._notes, written)
                self._notes.wrong(at, f"commands_file {_quoted_path(written)}: {what}", instead)
                del self._read[
                    path
                ]  # the next step that names it has a place of its own to correct
                return None
            if text is not None:
                self._read[path] = commands_in(text, self._params, self._notes.beside(str(path)))
        return self._read[path]


def read_text(path: Path, notes: Notes, at_most: int) -> str | None:
    """The file as text, without a byte order mark; None after noting a mistake. OSError is the caller's."""
    with path.open("rb") as file:
        content = file.read(at_most + 1)
    if len(content) > at_most:
        notes.wrong(WHOLE_FILE, f"the file is larger than {at_most // 2**20:,} MiB", "split it")
        return None
    try:
        return content.decode("utf-8").lstrip("\ufeff")
    except UnicodeDecodeError as exc:
        before = content[: exc.start].decode("utf-8").lstrip("\ufeff")
        is_utf16 = content.startswith((b"\xff\xfe", b"\xfe\xff"))
        what = f"the byte 0x{content[exc.start]:02x} is not UTF-8"
        instead = (
            "the file looks like UTF-16: save it as UTF-8" if is_utf16 else "save the file as UTF-8"
        )
        notes.wrong(place_in(before, len(before)), what, instead)
        return None


def why_unreadable(path: Path, exc: OSError, notes: Notes, written: str = "") -> tuple[str, str]:
    """What is wrong with a path, and what to write instead of what was ``written``."""
    parent = Path(written).parent if written else path.parent
    if isinstance(exc, FileNotFoundError):
        try:
            others = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
        except OSError:
            return (
                "there is no such file",
                f"check the path: there is no folder {_quoted_path(parent)}",
            )
        # More alike than words must be: any two short names that end in .txt are halfway there.
        nearest = notes.nearest(path.name, others, likeness=0.8)
        hint = f"did you mean {_quoted_path(parent / nearest)}?" if nearest else "check the path"
        return "there is no such file", hint
    if isinstance(exc, IsADirectoryError):
        return "this is a folder", "name a file in it"
    return f"it cannot be read: {exc.strerror or exc}", "check the path and its permissions"


def commands_in(
    text: str, params: Mapping[str, str] | None, notes: Notes
) -> tuple[str, ...] | None:
    """The commands of a file's text, filled in; blank lines and those that begin with # are none."""
    if "\0" in text:
        notes.wrong(place_in(text, text.index("\0")), "a NUL byte in the file", "remove it")
        return None
    lines = [line.strip(_BLANKS) for line in text.split("\n")]
    commands = [line for line in lines if line and line[0] != "#"]
    if not commands:
        notes.wrong(WHOLE_FILE, "there is no command in the file", "write one command a line")
        return None
    if "\r" in text:
        stray = next(
            (number for number, line in enumerate(lines, 1) if "\r" in line and line[0] != "#"), 0
        )
        if stray:
            at = Place(stray, lines[stray - 1].index("\r") + 1)
            notes.wrong(at, "a carriage return inside a line", "end lines with LF or CR LF")
            return None
    if params is not None and _PARAM_BEGINS in text:
        # Joined, since one pass over a long text is several times faster than a million over short ones.
        joined = "\n".join(commands)
        _check_params_of_file(text, joined, params, notes)
        commands = fill(joined, params).split("\n")
    return tuple(commands)


def fill(command: str, params: Mapping[str, str]) -> str:
    """With ``${params.NAME}`` replaced; a name that is not there stays as it is (and has been noted)."""
    if _PARAM_BEGINS not in command:
        return command
    return _PARAM.sub(lambda match: params.get(match[1], match[0]), command)


def check_params(
    command: str, params: Mapping[str, str], at: Place, notes: Notes, *, in_list: bool
) -> None:
    for name in dict.fromkeys(_PARAM.findall(command)):
        problem = _problem(name, params, notes, in_list)
        if problem:
            notes.wrong(at, *problem)


def _check_params_of_file(
    text: str, commands: str, params: Mapping[str, str], notes: Notes
) -> None:
    for name in dict.fromkeys(_PARAM.findall(commands)):
        problem = _problem(name, params, notes, in_list=True)
        if problem:
            # Told once, at its first use: a list made by a script has the same mistake on each of its lines.
            notes.wrong(_first_use(text, "${params." + name + "}"), *problem)


def _problem(
    name: str, params: Mapping[str, str], notes: Notes, in_list: bool
) -> tuple[str, str] | None:
    if name not in params:
        known = (
            "the parameters are " + ", ".join(list(params)[:20])
            if params
            else "write it under params"
        )
        return f"there is no parameter {quoted(name)}", notes.did_you_mean(
            name, params, otherwise=known
        )
    if in_list and ("\n" in params[name] or "\r" in params[name]):
        return (
            f"the parameter {quoted(name)} has several lines",
            "write it as one line to use it in a list",
        )
    return None


def _quoted_path(path: Path | str) -> str:
    return quoted(str(path), at_most=4096)  # whole, since a shortened path is no help


def _first_use(text: str, use: str) -> Place:
    for number, line in enumerate(text.split("\n"), 1):
        if use in line and not line.lstrip(_BLANKS).startswith("#"):
            return Place(number, line.index(use) + 1)
    return WHOLE_FILE
