"""Scripts in Python, Perl and other languages: they are recognized, and not followed. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

_SHELL = re.compile(r"(?:ba|da|a|z|k)?sh\b")
_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*|perl|ruby|node(?:js)?|php|lua|[gmn]?awk")
#: calls that start programs in these languages; most one-liners only work on text
_STARTS_PROGRAMS = re.compile(r"subprocess|\bsystem\b|popen|\bexec|spawn|\bqx\b|`", re.IGNORECASE)


def other_interpreter(script: str) -> str:
    """Return the program of the script's #! line; empty for a shell, or without such a line."""
    first_line = script.lstrip().split("\n", 1)[0]
    if not first_line.startswith("#!"):
        return ""
    names = [
        posixpath.basename(word)
        for word in first_line[2:].split()
        if not word.startswith("-") and "=" not in word
    ]
    name = next((name for name in names if name != "env"), "")
    return "" if not name or _SHELL.match(name) else name


def describe(interpreter: str) -> str:
    return f"runs a script for {interpreter}"


def is_interpreter(program: str) -> bool:
    return bool(_INTERPRETER.fullmatch(program))


def may_start_programs(texts: Iterable[str]) -> bool:
    """Return whether a script in another language, or a word of its command, can start programs."""
    return any(_STARTS_PROGRAMS.search(text) for text in texts)
