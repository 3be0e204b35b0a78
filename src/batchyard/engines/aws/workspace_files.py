"""The files of a local workspace: those that patterns match, and those that cannot go to S3."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from batchyard.errors import InputError
from batchyard.folder import HOME_NAME


@dataclass(frozen=True, slots=True)
class CheckedFiles:
    """Files of a workspace that can be sent."""

    #: Path in the workspace -> what the system says about the file.
    files: dict[str, os.stat_result]
    #: FIFOs, sockets and devices, which the worker does not send either.
    special_files: tuple[str, ...]


def check_files(workspace: Path, names: Iterable[str]) -> CheckedFiles:
    """Return the files of these names. Raises InputError for files that cannot go to S3."""
    files: dict[str, os.stat_result] = {}
    special_files, problems = [], []
    for name in names:
        problem, state = _check_file(workspace, name)
        if problem:
            problems.append(problem)
        elif state is not None and stat.S_ISREG(state.st_mode):
            files[name] = state
        elif state is not None:
            special_files.append(printable_name(name))
    if problems:
        title = f"in the workspace {workspace}, inputs match files that cannot go to S3:"
        raise InputError(
            "\n  ".join((title, *sorted(problems))),
            hint="repair or remove these files, or change the patterns of `inputs`",
        )
    return CheckedFiles(files, tuple(special_files))


def list_names(workspace: Path) -> Iterator[str]:
    """Return the paths in the workspace of all entries that are not folders."""
    for folder, folders, names in os.walk(workspace):
        folders[:] = sorted(name for name in folders if name != HOME_NAME)
        below = os.path.relpath(folder, workspace)
        yield from names if below == "." else (f"{below}/{name}" for name in names)


def printable_name(name: str) -> str:
    """Return a file's name as text, with bytes that are not UTF-8 escaped."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _check_file(workspace: Path, name: str) -> tuple[str, os.stat_result | None]:
    """Return (problem with the file, its state); neither where the file is gone by now."""
    path = workspace / name
    if printable_name(name) != name:
        problem = "its name is not UTF-8, and S3 accepts no other: rename it"
        return f"{printable_name(name)}: {problem}", None
    try:
        return "", path.stat()
    except OSError as exc:
        if path.is_symlink():
            target = printable_name(os.readlink(path))
            return f"{name}: a link to {target}, which does not exist", None
        is_gone = isinstance(exc, FileNotFoundError)
        return "" if is_gone else f"{name}: {exc.strerror}", None
