"""Whether a command needs a shell. Pure, but for looking a program up in PATH.

`sh -c` costs 0.7 ms a child, so a plain program with plain arguments is started directly. Wherever the shell could
make a difference, it decides: a false "needs a shell" costs a little time, a false "needs none" changes meaning.
"""

from __future__ import annotations

import os
import re
import shutil
from functools import lru_cache

SHELL = "/bin/sh"

#: words that mean themselves to every shell
_PLAIN = re.compile(r"[\w@%+=:,./ -]+", re.ASCII)

#: first words that only a shell can carry out, or that a program of that name does differently
_SHELL_WORDS = frozenset(
    ". : alias bg break builtin case cd chdir command continue declare do done elif else enable esac eval exec exit "
    "export fc fg fi for function getopts hash help history if in jobs kill let local popd printf pushd pwd read "
    "readonly return select set shift source test then time times trap type typeset ulimit umask unalias unset until "
    "wait while".split()
)


def program_of(command: str, path: str | None = None) -> tuple[str, tuple[str, ...]]:
    """The program to execute for the command, and its arguments with its name first; ``path`` is the child's PATH."""
    words = plain_words(command)
    if words:
        program = which(words[0], path)
        # What cannot be found is left to the shell, whose message and exit code (127, 126) people know.
        if program is not None:
            return program, words
    return through_shell(command)


def through_shell(command: str) -> tuple[str, tuple[str, ...]]:
    return SHELL, ("sh", "-c", command)


def plain_words(command: str) -> tuple[str, ...]:
    """The command's words if no shell is needed to make them out, else nothing."""
    if not _PLAIN.fullmatch(command):
        return ()
    words = [word for word in command.split(" ") if word]
    if not words or words[0] in _SHELL_WORDS or "=" in words[0]:
        return ()
    # The shell's own and the programs of that name differ in options.
    if words[0] in ("echo", "true", "false") and any(word.startswith("-") for word in words[1:]):
        return ()
    return tuple(words)


@lru_cache(maxsize=1024)
def which(program: str, path: str | None) -> str | None:
    found = shutil.which(program, path=path)
    return None if found is None else os.path.abspath(found)
