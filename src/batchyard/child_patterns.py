"""Patterns of files that differ from child to child: `${index}` and `${command.WORD}`. Pure.

The pipeline file, the engine and the worker use it; the worker has no other part of batchyard, so
errors are ValueErrors with a sentence.

    ${index}        the number of the child in its step
    ${command.2}    word 2 of a command of the child; word 0 is the program
    ${command.-n}   the word after `-n`, or the value of a word `-n=VALUE`

A pattern with `${command.WORD}` stands for as many patterns as the child has commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

INDEX = "index"
_COMMAND = "command."
_PLACEHOLDER = re.compile(r"\$\{([^{}]*)\}")
#: A command without these characters is split at its blanks, which is 30 times faster.
_SHELL_SYNTAX = re.compile(r"""[\\'"();<>|&]""")


def placeholders(pattern: str) -> list[str]:
    """Return the names in the pattern's `${...}`."""
    return _PLACEHOLDER.findall(pattern)


def names_index(pattern: str) -> bool:
    return INDEX in placeholders(pattern)


def names_command(pattern: str) -> bool:
    return any(is_command_word(name) for name in placeholders(pattern))


def is_command_word(placeholder: str) -> bool:
    return placeholder.startswith(_COMMAND) and len(placeholder) > len(_COMMAND)


def is_inside_workspace(pattern: str) -> bool:
    """Return whether all paths that match are relative and below the workspace."""
    has_root = not pattern or pattern.startswith("/") or "://" in pattern or "\0" in pattern
    return not has_root and ".." not in pattern.split("/")


def fill(patterns: Iterable[str], index: int, commands: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the patterns of a child, without duplicates.

    ``index``: the child's number in its step. ``commands``: the texts of its commands. Raises
    ValueError for a command that does not have the word, or whose word leaves the workspace.
    """
    filled: dict[str, None] = {}
    texts: list[str] | None = None
    for pattern in patterns:
        if "${" not in pattern:
            filled[pattern] = None
            continue
        with_index = pattern.replace("${index}", str(index))
        if not names_command(pattern):
            filled[with_index] = None
            continue
        texts = list(commands) if texts is None else texts
        for command in texts:
            filled[fill_words(with_index, command)] = None
    return tuple(filled)


def fill_words(pattern: str, command: str) -> str:
    """Return the pattern with the words of a command in place of `${command.WORD}`."""
    words = split_words(command)

    def find_word(match: re.Match[str]) -> str:
        name = match[1]
        return _find_word(words, name[len(_COMMAND) :]) if is_command_word(name) else match[0]

    try:
        path = _PLACEHOLDER.sub(find_word, pattern)
    except LookupError as exc:
        raise ValueError(f"the command `{_shorten(command)}` has {exc.args[0]}") from None
    if not is_inside_workspace(path):
        quoted_path = repr(path) if path else "empty"
        raise ValueError(
            f"with the command `{_shorten(command)}`, {pattern} is {quoted_path}, "
            "which is not a path inside the workspace"
        )
    return path


def find_word(placeholder: str, command: str) -> str:
    """Return the word of a command that `${command.WORD}` stands for. Raises ValueError."""
    words = split_words(command)
    try:
        return _find_word(words, placeholder.removeprefix("${" + _COMMAND).removesuffix("}"))
    except LookupError as exc:
        raise ValueError(f"the command `{_shorten(command)}` has {exc.args[0]}") from None


def split_words(command: str) -> list[str]:
    """Return the words of a command as a shell would split them, with quotes removed.

    Signs like `;`, `|` and `>` are words of their own. Variables are not filled in.
    """
    if not _SHELL_SYNTAX.search(command):
        return command.split()
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError as exc:
        message = str(exc).lower()
        raise ValueError(f"the command `{_shorten(command)}` has {message}") from None


def widen(pattern: str) -> str:
    """Return a pattern that matches whatever the pattern of any child matches."""
    folders: list[str] = []
    for part in pattern.replace("${index}", "*").split("/"):
        # The words of a command may have slashes.
        if names_command(part):
            return "/".join([*folders, "**"])
        folders.append(part)
    return "/".join(folders)


def _find_word(words: list[str], name: str) -> str:
    """Return the word that the name is about. Raises LookupError with what is missing."""
    if name.isdigit():
        if int(name) < len(words):
            return words[int(name)]
        raise LookupError(f"no word {name}: it has {len(words)}, counted from 0")
    for number, word in enumerate(words):
        if word == name and number + 1 < len(words):
            return words[number + 1]
        if word.startswith(f"{name}="):
            return word[len(name) + 1 :]
    raise LookupError(f"no word after {name}")


def _shorten(command: str) -> str:
    return command if len(command) <= 80 else f"{command[:77]}..."
