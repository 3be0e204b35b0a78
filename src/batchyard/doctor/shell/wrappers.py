"""Programs that run another program: sudo, env, timeout, bash -c ... What is left when they are taken away. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

SHELLS = frozenset({"bash", "sh", "dash", "ash", "zsh", "ksh"})

#: program -> its options that take a value of their own
_VALUE_OPTIONS: dict[str, frozenset[str]] = {
    "sudo": frozenset({"-u", "-g", "-h", "-p", "-C", "-r", "-t", "-U", "--user", "--group"}),
    "doas": frozenset({"-u", "-C"}),
    "env": frozenset({"-u", "-C", "-S", "--unset", "--chdir"}),
    "nice": frozenset({"-n", "--adjustment"}),
    "ionice": frozenset({"-c", "-n", "-p", "-P", "-u"}),
    "timeout": frozenset({"-s", "-k", "--signal", "--kill-after"}),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    "chrt": frozenset({"-T", "-P", "-D"}),
    "setsid": frozenset(),
    "nohup": frozenset(),
    "time": frozenset({"-f", "-o"}),
    "exec": frozenset({"-a"}),
    "command": frozenset(),
    "builtin": frozenset(),
    "unbuffer": frozenset(),
    "busybox": frozenset(),
    "chroot": frozenset(),
    "flock": frozenset({"-w", "-E", "--timeout", "--wait"}),
    "taskset": frozenset(),
    "cloud-init-per": frozenset(),
    "systemd-run": frozenset({"-u", "-p", "-t", "-E", "-M", "-H", "--unit", "--property", "--on-active", "--on-boot"}),
    "systemd-inhibit": frozenset(),
    "nsenter": frozenset({"-t", "--target", "-S", "-G"}),
    "xargs": frozenset({"-n", "-P", "-I", "-L", "-d", "-s", "-a", "-E"}),
    "su": frozenset({"-s", "-g"}),
    "runuser": frozenset({"-s", "-g", "-u"}),
}
#: program -> words of its own before the program that it runs
_OWN_WORDS = {"timeout": 1, "chroot": 1, "flock": 1, "taskset": 1, "cloud-init-per": 2, "chrt": 1}
_SHELL_OPTIONS = frozenset({"-i", "-s", "--login", "--shell"})
#: runuser runs a program where it is given one of these, and a shell where not
_RUNS_PROGRAM = frozenset({"-u", "--user", "--"})
_UNKNOWN = re.compile(r"\$(?:\{\w+\}|\(\))")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bare:
    """A command without what it was wrapped in."""

    words: tuple[str, ...]
    #: another process runs it, and this one goes on
    is_detached: bool = False
    #: it is ended by a clock
    is_bounded: bool = False
    #: shell text to be run instead of the words
    script: str | None = None
    #: the words are a file of shell commands
    is_file: bool = False
    #: the commands come from standard input
    reads_stdin: bool = False
    #: standard input has further words of the command
    takes_stdin_words: bool = False


def base(word: str) -> str:
    return word.rsplit("/", 1)[-1]


def strip(words: tuple[str, ...]) -> Bare:
    bare = Bare(words)
    for _ in range(12):
        bare = replace(bare, words=_without_assignments(bare.words))
        if not bare.words:
            return bare
        name = base(bare.words[0])
        if name in SHELLS:
            return _shell(bare)
        if name == "su" or (name == "runuser" and _RUNS_PROGRAM.isdisjoint(bare.words)):
            return _other_user(bare)
        if _UNKNOWN.fullmatch(name) and len(bare.words) > 1:  # most likely $SUDO
            bare = replace(bare, words=bare.words[1:])
            continue
        if name not in _VALUE_OPTIONS or len(bare.words) < 2:
            return bare
        bare = _unwrap(name, bare)
        if bare.script is not None:
            return bare
    return bare


def _without_assignments(words: tuple[str, ...]) -> tuple[str, ...]:
    start = 0
    while start < len(words) and _ASSIGNMENT.match(words[start]):
        start += 1
    return words[start:]


def _unwrap(name: str, bare: Bare) -> Bare:
    words = bare.words
    at = 1
    options: list[str] = []
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        options.append(words[at])
        at += 2 if words[at] in _VALUE_OPTIONS[name] else 1
    at += words[at : at + 1] == ("--",)
    at += _OWN_WORDS.get(name, 0)
    if name == "flock" and words[at : at + 1] == ("-c",):
        return replace(bare, script=" ".join(words[at + 1 : at + 2]))
    opens_shell = name == "sudo" and not words[at:] and bool(_SHELL_OPTIONS & set(options))
    is_apart = bare.is_detached or (name == "setsid" and bool({"-f", "--fork"} & set(options)))
    if name == "systemd-run":
        waits = {"--wait", "--scope", "--pty", "-t", "-P", "--pipe"} & {option.partition("=")[0] for option in options}
        is_apart = is_apart or not waits
    return replace(
        bare,
        words=words[at:],
        is_detached=is_apart,
        is_bounded=bare.is_bounded or name == "timeout",
        takes_stdin_words=bare.takes_stdin_words or name == "xargs",
        reads_stdin=opens_shell,
    )


def _other_user(bare: Bare) -> Bare:
    """su -c text, or su with the commands on standard input."""
    for at, word in enumerate(bare.words):
        if word == "--command" or re.fullmatch(r"-[a-z]*c", word):
            return replace(bare, script=" ".join(bare.words[at + 1 : at + 2]))
        if word.startswith("--command="):
            return replace(bare, script=word.partition("=")[2])
    return replace(bare, words=(), reads_stdin=True)


def _shell(bare: Bare) -> Bare:
    """bash -c text, bash file, or bash with its commands on standard input."""
    at = 1
    words = bare.words
    while at < len(words) and words[at][:1] in "-+" and words[at] not in ("-", "--"):
        option = words[at]
        if not option.startswith("--") and option.endswith("c"):
            return replace(bare, script=words[at + 1] if at + 1 < len(words) else "")
        if option == "-s":
            return replace(bare, words=(), reads_stdin=True)
        at += 2 if option in ("-o", "+o", "-O", "--rcfile", "--init-file") else 1
    rest = words[at:]
    if not rest or rest[0] in ("-", "/dev/stdin"):
        return replace(bare, words=(), reads_stdin=True)
    return replace(bare, words=rest, is_file=True)
