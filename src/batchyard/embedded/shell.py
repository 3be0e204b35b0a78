"""Decide whether a command needs a shell. Pure, but for the lookup of a program in PATH.

`sh -c` costs 0.7 ms a child, so a plain program with plain arguments is started directly. In doubt
a shell is used: that costs a little time, while leaving it out could change the meaning.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache

SHELL = "/bin/sh"

#: Text without special characters of any shell.
_PLAIN = re.compile(r"[\w@%+=:,./ -]+", re.ASCII)

#: Builtins and keywords of shells, for which there is no program or a different one.
_SHELL_WORDS = frozenset(
    ". : alias bg break builtin case cd chdir command continue declare do done elif else enable "
    "esac eval exec exit export fc fg fi for function getopts hash help history if in jobs kill "
    "let local popd printf pushd pwd read readonly return select set shift source test then time "
    "times trap type typeset ulimit umask unalias unset until wait while".split()
)


def program_of(command: str, path: str | None = None) -> tuple[str, tuple[str, ...]]:
    """Return the program of a command, and its arguments with its name first.

    ``path``: the PATH of the child.
    """
    words = plain_words(command)
    if words:
        program = which(words[0], path)
        # For a missing program the shell has the usual message and exit code (127, 126).
        if program is not None:
            return program, words
    return through_shell(command)


def through_shell(command: str) -> tuple[str, tuple[str, ...]]:
    return SHELL, ("sh", "-c", command)


def plain_words(command: str) -> tuple[str, ...]:
    """Return the words of a command that needs no shell; empty for any other command."""
    if not _PLAIN.fullmatch(command):
        return ()
    words = [word for word in command.split(" ") if word]
    if not words or words[0] in _SHELL_WORDS or "=" in words[0]:
        return ()
    # The builtins have other options than the programs.
    if words[0] in ("echo", "true", "false") and any(word.startswith("-") for word in words[1:]):
        return ()
    return tuple(words)


@lru_cache(maxsize=1024)
def which(program: str, path: str | None) -> str | None:
    """Return the absolute path of a program; None if PATH does not have it."""
    if os.path.dirname(program):
        folders = [""]
    else:
        folders = (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep)
    for folder in folders:
        file_name = os.path.join(folder, program)
        if os.access(file_name, os.X_OK) and not os.path.isdir(file_name):
            return os.path.abspath(file_name)
    return None
