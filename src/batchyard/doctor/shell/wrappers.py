"""Programs that run another program: sudo, env, timeout, bash -c ... What is left when they are taken away. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

#: lines or words of standard input that are looked at
MAX_LINES = 200
#: what a command may become
MAX_SCRIPT = 20_000

SHELLS = frozenset({"bash", "sh", "dash", "ash", "zsh", "ksh"})

#: program -> its options that take a value of their own
_VALUE_OPTIONS: dict[str, frozenset[str]] = {
    "sudo": frozenset(
        {"-u", "-g", "-h", "-p", "-C", "-r", "-t", "-U", "-D", "-R", "-T", "--user", "--group"}
    ),
    "doas": frozenset({"-u", "-C"}),
    "env": frozenset({"-u", "-C", "--unset", "--chdir"}),
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
    "systemd-run": frozenset(
        {"-u", "-p", "-t", "-E", "-M", "-H", "--unit", "--property", "--on-active", "--on-boot"}
    ),
    "systemd-inhibit": frozenset(),
    "nsenter": frozenset({"-t", "--target", "-S", "-G"}),
    "xargs": frozenset(
        {"-n", "-P", "-I", "-L", "-d", "-s", "-a", "-E", "--max-args", "--max-procs", "--delimiter"}
    ),
    "unshare": frozenset(
        {"-S", "-G", "-R", "-w", "--setuid", "--setgid", "--root", "--wd", "--map-user"}
    ),
    "strace": frozenset(
        {"-a", "-b", "-e", "-E", "-I", "-o", "-O", "-p", "-P", "-s", "-S", "-u", "-U", "-X"}
    ),
    "ltrace": frozenset({"-a", "-e", "-l", "-n", "-o", "-p", "-s", "-u", "-x"}),
    "watch": frozenset({"-n", "--interval"}),
    "parallel": frozenset({"-j", "--jobs", "-N", "-n", "-I", "-d"}),
    "setpriv": frozenset({"--reuid", "--regid", "--groups"}),
    "su": frozenset({"-s", "-g"}),
    "runuser": frozenset({"-s", "-g", "-u"}),
}
#: programs that take a text for a shell: -> the words before one that has no -c; 0 where it must have it
_TEXT_BEHIND: dict[str, int] = {"script": 0, "sg": 1}
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
    #: what is replaced in the command by each line of standard input
    placeholder: str = ""
    #: $0 and the arguments of the script
    args: tuple[str, ...] = ()
    #: NAME=value for it alone
    assignments: tuple[str, ...] = ()


def base(word: str) -> str:
    return word.rsplit("/", 1)[-1]


def strip(words: tuple[str, ...]) -> Bare:
    bare = Bare(words)
    for _ in range(12):
        bare = _without_assignments(bare)
        if not bare.words:
            return bare
        name = base(bare.words[0])
        if name in SHELLS:
            return _shell(bare)
        if name == "su" or (name == "runuser" and _RUNS_PROGRAM.isdisjoint(bare.words)):
            return _other_user(bare)
        if name in _TEXT_BEHIND:
            return _with_text(name, bare)
        if _UNKNOWN.fullmatch(name) and len(bare.words) > 1:  # most likely $SUDO
            bare = replace(bare, words=bare.words[1:])
            continue
        if name not in _VALUE_OPTIONS or len(bare.words) < 2 or _only_asks(name, bare.words[1]):
            return bare
        bare = _unwrap(name, bare)
        if bare.script is not None:
            return bare
    return bare


def fed(bare: Bare, text: str | None) -> list[Bare]:
    """The commands that xargs makes of its standard input; the command itself where that is not known."""
    if text is None:
        return [bare]
    if bare.placeholder:
        lines = [line.strip() for line in text.split("\n") if line.strip()][:MAX_LINES]
        return [_filled(bare, line) for line in lines] or [bare]
    more = tuple(text.split()[:MAX_LINES]) if bare.takes_stdin_words else ()
    if bare.reads_stdin and bare.takes_stdin_words:
        return [replace(bare, words=(word,), reads_stdin=False, is_file=True) for word in more]
    if bare.script is not None or bare.is_file:
        return [
            replace(bare, args=bare.args + more, words=bare.words + (more if bare.is_file else ()))
        ]
    return [replace(bare, words=bare.words + more)]


def _filled(bare: Bare, line: str) -> Bare:
    script = (
        None if bare.script is None else bare.script.replace(bare.placeholder, line)[:MAX_SCRIPT]
    )
    words, args = (
        tuple(word.replace(bare.placeholder, line)[:MAX_SCRIPT] for word in given)
        for given in (bare.words, bare.args)
    )
    return replace(bare, words=words, args=args, script=script)


def _only_asks(name: str, option: str) -> bool:
    """`command -v name` says where it is, and runs nothing."""
    return name == "command" and option in ("-v", "-V", "-pv", "-pV")


def _without_assignments(bare: Bare) -> Bare:
    words = bare.words
    start = 0
    while start < len(words) and _ASSIGNMENT.match(words[start]):
        start += 1
    return (
        replace(bare, words=words[start:], assignments=bare.assignments + words[:start])
        if start
        else bare
    )


def _takes_next(name: str, option: str) -> bool:
    """Whether the word behind an option is its value: -u root, -Eu root; not -uroot, --user=root."""
    if option.startswith("--") or option in _VALUE_OPTIONS[name]:
        return option in _VALUE_OPTIONS[name]
    letters = [f"-{letter}" in _VALUE_OPTIONS[name] for letter in option[1:]]
    return bool(letters) and letters[-1] and not any(letters[:-1])


def _unwrap(name: str, bare: Bare) -> Bare:
    words = bare.words
    at = 1
    options: list[str] = []
    placeholder = bare.placeholder
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        option = words[at]
        if name == "env" and (text := _split_string(words[at:])) is not None:
            return replace(bare, words=(), script=text)
        if name in ("xargs", "parallel") and option.startswith(("-I", "-i", "--replace")):
            given = (
                option.removeprefix("--replace")
                .removeprefix("-I")
                .removeprefix("-i")
                .removeprefix("=")
            )
            placeholder = given or (
                words[at + 1] if option == "-I" and at + 1 < len(words) else "{}"
            )
        options.append(option)
        at += 2 if _takes_next(name, option) else 1
    at += words[at : at + 1] == ("--",)
    at += _OWN_WORDS.get(name, 0)
    if name == "flock" and words[at : at + 1] in (("-c",), ("--command",)):
        return replace(bare, script=" ".join(words[at + 1 : at + 2]))
    if name == "parallel" and ":::" in words[at:]:
        return _in_parallel(bare, words[at:], placeholder)
    opens_shell = name == "sudo" and not words[at:] and any(map(_opens_shell, options))
    is_apart = bare.is_detached or (name == "setsid" and bool({"-f", "--fork"} & set(options)))
    if name == "systemd-run":
        waits = {"--wait", "--scope", "--pty", "-t", "-P", "--pipe"} & {
            option.partition("=")[0] for option in options
        }
        is_apart = is_apart or not waits
    return replace(
        bare,
        words=words[at:],
        is_detached=is_apart,
        is_bounded=bare.is_bounded or name == "timeout",
        takes_stdin_words=bare.takes_stdin_words or name in ("xargs", "parallel"),
        placeholder=placeholder,
        reads_stdin=opens_shell,
    )


def _opens_shell(option: str) -> bool:
    is_short = not option.startswith("--")
    return option in _SHELL_OPTIONS or (is_short and ("i" in option[1:] or "s" in option[1:]))


def _split_string(words: tuple[str, ...]) -> str | None:
    """env -S "program its words"."""
    option = words[0]
    if option.startswith("--split-string"):
        text, rest = (
            (option.partition("=")[2], words[1:])
            if "=" in option
            else (" ".join(words[1:2]), words[2:])
        )
    elif not option.startswith("--") and "S" in option:
        behind = option.partition("S")[2]
        text, rest = (behind, words[1:]) if behind else (" ".join(words[1:2]), words[2:])
    else:
        return None
    return " ".join((text, *("'" + word.replace("'", "'\\''") + "'" for word in rest)))


def _in_parallel(bare: Bare, words: tuple[str, ...], placeholder: str) -> Bare:
    """parallel command ::: value value."""
    at = words.index(":::")
    command, values = " ".join(words[:at]), words[at + 1 :][:MAX_LINES]
    mark = placeholder or "{}"
    lines = [
        command.replace(mark, value) if mark in command else f"{command} {value}"
        for value in values
    ]
    return replace(bare, words=(), script="\n".join(lines)[:MAX_SCRIPT])


def _with_text(name: str, bare: Bare) -> Bare:
    """script -qc text file; sg group -c text."""
    for at, word in enumerate(bare.words[1:], 1):
        if word in ("--command", "-c") or (name == "script" and re.fullmatch(r"-[a-z]*c", word)):
            return replace(bare, script=" ".join(bare.words[at + 1 : at + 2]))
        if word.startswith("--command="):
            return replace(bare, script=word.partition("=")[2])
    own = _TEXT_BEHIND[name]
    return (
        replace(bare, script=" ".join(bare.words[own + 1 :]))
        if own and bare.words[own + 1 :]
        else bare
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
    takes_stdin = False
    while at < len(words) and words[at][:1] in "-+" and words[at] not in ("-", "--"):
        option = words[at]
        is_short = option.startswith("-") and not option.startswith("--")
        if is_short and "n" in option:  # reads the script, and runs none of it
            return replace(bare, words=())
        if is_short and option.endswith("c"):
            at += words[at + 1 : at + 2] == ("--",)
            return replace(
                bare, script=words[at + 1] if at + 1 < len(words) else "", args=words[at + 2 :]
            )
        takes_stdin = takes_stdin or (is_short and "s" in option)
        at += (
            2
            if option in ("-o", "+o", "-O", "--rcfile", "--init-file") or _is_named_option(option)
            else 1
        )
    at += words[at : at + 1] == ("--",)
    rest = words[at:]
    if takes_stdin or not rest or rest[0] in ("-", "/dev/stdin"):
        own = rest if takes_stdin else rest[1:]
        return replace(bare, words=(), reads_stdin=True, args=("", *own))
    return replace(bare, words=rest, is_file=True)


def _is_named_option(option: str) -> bool:
    """-euo pipefail."""
    return bool(re.fullmatch(r"[-+][a-z]+o", option))
