"""Scripts in other languages: which program speaks which, and the commands that their text has run. Pure.

Python is read by its own parser (``python``). Of the others, and of Python that does not parse, the calls that run
programs are looked for, with the texts in quotes that follow them; comments are not looked at. Of a language that is
not known at all, every line that looks like a command is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from batchyard.doctor.shell import python
from batchyard.doctor.shell.wrappers import base

PYTHON, UNKNOWN = "python", "unknown"

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_LANGUAGES = frozenset({"perl", "ruby", "node", "php", "lua", "awk"})
_ALSO = {"gawk": "awk", "mawk": "awk", "nawk": "awk", "nodejs": "node"}
_SHELLS = re.compile(r"(?:ba|da|a|z|k)?sh")
#: options that take a value of their own
_VALUE_OPTIONS = {
    "python": frozenset({"-W", "-X"}),
    "awk": frozenset({"-v", "-F"}),
    "perl": frozenset({"-I"}),
}
_RUNS = re.compile(
    r"\b(?:system|exec|popen\d?|Popen|call|check_call|check_output|run|spawn|execSync|execFileSync|spawnSync|shell_exec"
    r"|passthru|execute|qx|capture\w*)\b(?=\s*[(\[{\"'/|!])|`"
)
_STRING = re.compile(r"[\s(\[{,]*(?:[\"']((?:[^\"'\\\n]|\\.)*)[\"'])")
_BARE = re.compile(r"\s*([({/|!])([^)}/|!\n]*)")
_COMMENTS = {"node": re.compile(r"^\s*(?://|\*)|\s//\s"), "lua": re.compile(r"--")}
_COMMENT = re.compile(r"(?:^|\s)#|^\s*//")
_LOOKS = re.compile(
    r"(?:\b(?:systemctl|service|initctl|invoke-rc\.d)|/sbin/(?:re)?start|/etc/init\.d/)\b.*"
    r"|\b(?:re)?start (?:ecs|docker)\b.*"
)
_PUNCTUATION = re.compile(r"[\[\]()'\",;]+")
MAX_STRINGS = 40


@dataclass(frozen=True, slots=True)
class Spoken:
    """A program that reads a script in its own language."""

    language: str
    #: the script itself, or
    text: str | None = None
    #: the file where it stands; neither: standard input
    file: str | None = None


def language(program: str) -> str | None:
    """What it speaks; None for a shell, or a program that is no interpreter."""
    name = base(program)
    name = _ALSO.get(name, name)
    return PYTHON if _PYTHON.fullmatch(name) else name if name in _LANGUAGES else None


def of_first_line(text: str) -> str | None:
    """The language of a script that begins with #! and is not the shell's."""
    first = text.lstrip().split("\n", 1)[0]
    if not first.startswith("#!"):
        return None
    words = [
        word
        for word in first[2:].split()
        if base(word) != "env" and not word.startswith("-") and "=" not in word
    ]
    if not words or _SHELLS.fullmatch(base(words[0])):
        return None
    return language(words[0]) or UNKNOWN


def spoken(words: tuple[str, ...]) -> Spoken | None:
    """python3 -c text, perl -e text, awk text, python3 file, python3 < file."""
    name = language(words[0])
    if name is None:
        return None
    texts: list[str] = []
    at = 1
    while at < len(words) and words[at].startswith("-") and len(words[at]) > 1:
        option = words[at]
        if name == PYTHON and option.startswith("-m"):
            return None
        if name != "awk" and re.fullmatch(
            r"-[A-Za-z]*c" if name == PYTHON else r"-[A-Za-z]*[eEr]|--eval", option
        ):
            texts += words[at + 1 : at + 2]
            if name == PYTHON:
                break
            at += 1
        elif name == "awk" and option == "-f":
            return Spoken(name, file=words[at + 1] if at + 1 < len(words) else None)
        at += 2 if option in _VALUE_OPTIONS.get(name, ()) else 1
    if texts:
        return Spoken(name, "\n".join(texts))
    rest = words[at:]
    if name == "awk":
        return Spoken(name, rest[0]) if rest else None
    return Spoken(name, file=rest[0] if rest and rest[0] not in ("-", "/dev/stdin") else None)


def calls(language: str, text: str) -> list[python.Call]:
    """The commands that the script has run, in the order in which they stand."""
    if language == UNKNOWN:
        return list(_looks(text))
    found = python.calls(text) if language == PYTHON else None
    return found if found is not None else list(_plain(language, text))


def looks(text: str) -> list[python.Call]:
    """What looks like a command, line by line, in text that nothing can read."""
    return list(_looks(text))


def _looks(text: str) -> Iterator[python.Call]:
    for number, line in enumerate(text.split("\n"), 1):
        match = _LOOKS.search(line[:2000])
        if match and not line.lstrip().startswith("#"):
            yield python.Call(tuple(_PUNCTUATION.sub(" ", match[0]).split()), "", number)


def _plain(language: str, text: str) -> Iterator[python.Call]:
    comment = _COMMENTS.get(language, _COMMENT)
    at = 0
    while match := _RUNS.search(text, at):
        at = match.end()
        start = text.rfind("\n", 0, match.start()) + 1
        if comment.search(_without_strings(text[start : match.start()])):
            continue
        script, at = _command(text, at, match[0])
        if script.strip():
            yield python.Call(
                (), script, text.count("\n", 0, match.start()) + 1, match[0] in ("Popen", "spawn")
            )


def _without_strings(line: str) -> str:
    return re.sub(r"\"[^\"]*\"|'[^']*'", "", line[-2000:])


def _command(text: str, at: int, word: str) -> tuple[str, int]:
    """The texts in quotes behind a call, as one command; or what stands in backticks, or in qx(...)."""
    if word == "`":
        stop = text.find("`", at)
        return (text[at:stop], stop + 1) if stop >= 0 else ("", at)
    if word == "qx" and (bare := _BARE.match(text, at)):
        return bare[2], bare.end()
    found: list[str] = []
    while len(found) < MAX_STRINGS and (string := _STRING.match(text, at)):
        found.append(string[1])
        at = string.end()
    return " ".join(found), at
