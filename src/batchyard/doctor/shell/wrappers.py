"""Find the command that is run by sudo, env, timeout, bash -c and similar programs. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

#: lines or words of standard input that are used
MAX_LINES = 200
#: characters of a command that is built from standard input
MAX_SCRIPT = 20_000
#: commands around a command: `sudo env nice ...`
MAX_WRAPPERS = 12

SHELLS = frozenset({"bash", "sh", "dash", "ash", "zsh", "ksh"})

#: program -> its options that take a value of their own
_VALUE_OPTIONS = {
    program: frozenset(options.split())
    for program, options in {
        "sudo": "-u -g -h -p -C -r -t -U -D -R -T --user --group",
        "doas": "-u -C",
        "env": "-u -C --unset --chdir",
        "nice": "-n --adjustment",
        "ionice": "-c -n -p -P -u",
        "timeout": "-s -k --signal --kill-after",
        "stdbuf": "-i -o -e",
        "chrt": "-T -P -D",
        "setsid": "",
        "nohup": "",
        "time": "-f -o",
        "exec": "-a",
        "command": "",
        "builtin": "",
        "unbuffer": "",
        "busybox": "",
        "chroot": "",
        "flock": "-w -E --timeout --wait",
        "taskset": "",
        "cloud-init-per": "",
        "systemd-run": "-u -p -t -E -M -H --unit --property --on-active --on-boot",
        "systemd-inhibit": "",
        "nsenter": "-t --target -S -G",
        "xargs": "-n -P -I -L -d -s -a -E --max-args --max-procs --delimiter",
        "unshare": "-S -G -R -w --setuid --setgid --root --wd --map-user",
        "strace": "-a -b -e -E -I -o -O -p -P -s -S -u -U -X",
        "ltrace": "-a -e -l -n -o -p -s -u -x",
        "watch": "-n --interval",
        "parallel": "-j --jobs -N -n -I -d",
        "setpriv": "--reuid --regid --groups",
        "su": "-s -g",
        "runuser": "-s -g -u",
    }.items()
}
#: programs that run a text in a shell -> words before a text without -c; 0: -c is needed
_TEXT_PROGRAMS: dict[str, int] = {"script": 0, "sg": 1}
#: program -> number of its own arguments before the command that it runs
_ARGUMENT_COUNTS = {
    "timeout": 1,
    "chroot": 1,
    "flock": 1,
    "taskset": 1,
    "cloud-init-per": 2,
    "chrt": 1,
}
#: programs that build commands from standard input
_STDIN_PROGRAMS = ("xargs", "parallel")
_SHELL_OPTIONS = frozenset({"-i", "-s", "--login", "--shell"})
#: runuser with one of these runs a program, otherwise a shell
_RUNS_PROGRAM = frozenset({"-u", "--user", "--"})
#: systemd-run with one of these waits for the command
_WAITING_OPTIONS = frozenset({"--wait", "--scope", "--pty", "-t", "-P", "--pipe"})
_UNKNOWN = re.compile(r"\$(?:\{\w+\}|\(\))")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """A command without the commands around it."""

    words: tuple[str, ...]
    #: another process runs the command, and the script does not wait for it
    is_detached: bool = False
    #: a timeout ends the command
    is_bounded: bool = False
    #: shell text to be run instead of the words
    script: str | None = None
    #: the words are a file of shell commands and its arguments
    is_file: bool = False
    #: the commands come from standard input
    reads_stdin: bool = False
    #: standard input has further words of the command
    takes_stdin_words: bool = False
    #: the text in the command that each line of standard input replaces
    placeholder: str = ""
    #: $0 and the arguments of the script
    args: tuple[str, ...] = ()
    #: NAME=value for this command alone
    assignments: tuple[str, ...] = ()


def program_name(word: str) -> str:
    """Return the last part of a program's path."""
    return word.rsplit("/", 1)[-1]


def unwrap(words: tuple[str, ...]) -> Unwrapped:
    """Return the command that the words run in the end."""
    command = Unwrapped(words)
    for _ in range(MAX_WRAPPERS):
        command = _split_off_assignments(command)
        if not command.words:
            return command
        name = program_name(command.words[0])
        shell_command = _unwrap_shell(name, command)
        if shell_command is not None:
            return shell_command
        if _UNKNOWN.fullmatch(name) and len(command.words) > 1:  # most likely $SUDO
            command = replace(command, words=command.words[1:])
            continue
        if name not in _VALUE_OPTIONS or len(command.words) < 2 or _only_looks_up(command.words):
            return command
        command = _unwrap_program(name, command)
        if command.script is not None:
            return command
    return command


def _unwrap_shell(name: str, command: Unwrapped) -> Unwrapped | None:
    """Return what a shell, or a program that starts one, runs; None for any other program."""
    if name in SHELLS:
        return _unwrap_shell_command(command)
    if name == "su" or (name == "runuser" and _RUNS_PROGRAM.isdisjoint(command.words)):
        return _unwrap_su(command)
    return _unwrap_text_program(name, command) if name in _TEXT_PROGRAMS else None


def feed_stdin(command: Unwrapped, stdin: str | None) -> list[Unwrapped]:
    """Return the commands that xargs builds of standard input; None: the input is unknown."""
    if stdin is None:
        return [command]
    if command.placeholder:
        return _feed_lines(command, stdin)
    return _feed_words(command, tuple(stdin.split()[:MAX_LINES]))


def _feed_lines(command: Unwrapped, stdin: str) -> list[Unwrapped]:
    lines = [line.strip() for line in stdin.split("\n") if line.strip()][:MAX_LINES]
    return [_replace_placeholder(command, line) for line in lines] or [command]


def _feed_words(command: Unwrapped, stdin_words: tuple[str, ...]) -> list[Unwrapped]:
    if not command.takes_stdin_words:
        return [command]
    if command.reads_stdin:
        return [
            replace(command, words=(word,), reads_stdin=False, is_file=True) for word in stdin_words
        ]
    if command.is_file:
        words, args = command.words + stdin_words, command.args + stdin_words
        return [replace(command, words=words, args=args)]
    if command.script is not None:
        return [replace(command, args=command.args + stdin_words)]
    return [replace(command, words=command.words + stdin_words)]


def _replace_placeholder(command: Unwrapped, line: str) -> Unwrapped:
    def fill(text: str) -> str:
        return text.replace(command.placeholder, line)[:MAX_SCRIPT]

    return replace(
        command,
        words=tuple(map(fill, command.words)),
        args=tuple(map(fill, command.args)),
        script=None if command.script is None else fill(command.script),
    )


def _only_looks_up(words: tuple[str, ...]) -> bool:
    """Return whether the command is `command -v name`, which prints a path and runs nothing."""
    return program_name(words[0]) == "command" and words[1] in ("-v", "-V", "-pv", "-pV")


def _split_off_assignments(command: Unwrapped) -> Unwrapped:
    words = command.words
    count = 0
    while count < len(words) and _ASSIGNMENT.match(words[count]):
        count += 1
    if not count:
        return command
    return replace(command, words=words[count:], assignments=command.assignments + words[:count])


# -- programs with options before a command -------------------------------------------------------


def _takes_next(name: str, option: str) -> bool:
    """Return whether the next word is the option's value: -u root, -Eu root; not -uroot."""
    if option.startswith("--") or option in _VALUE_OPTIONS[name]:
        return option in _VALUE_OPTIONS[name]
    letters = [f"-{letter}" in _VALUE_OPTIONS[name] for letter in option[1:]]
    return bool(letters) and letters[-1] and not any(letters[:-1])


def _count_options(name: str, words: tuple[str, ...]) -> int:
    """Return how many of the words are options of the program, or values of options."""
    count = 0
    while count < len(words) and words[count].startswith("-") and words[count] != "--":
        count += 2 if _takes_next(name, words[count]) else 1
    return min(count, len(words))


def _unwrap_program(name: str, command: Unwrapped) -> Unwrapped:
    words = command.words[1:]
    option_count = _count_options(name, words)
    option_words, operands = words[:option_count], words[option_count:]
    operands = _skip_dashes(operands)[_ARGUMENT_COUNTS.get(name, 0) :]
    script = _find_script(name, words, option_count, operands)
    if script is not None:
        return replace(command, words=(), script=script)
    options = [word for word in option_words if word.startswith("-")]
    if name in _STDIN_PROGRAMS:
        placeholder = _find_placeholder(option_words) or command.placeholder
        if name == "parallel" and ":::" in operands:
            return _unwrap_parallel(command, operands, placeholder)
        command = replace(command, takes_stdin_words=True, placeholder=placeholder)
    return replace(
        command,
        words=operands,
        is_detached=command.is_detached or _detaches(name, options),
        is_bounded=command.is_bounded or name == "timeout",
        reads_stdin=_reads_commands(name, options, operands),
    )


def _find_script(
    name: str, words: tuple[str, ...], option_count: int, operands: tuple[str, ...]
) -> str | None:
    """Return the shell text of env -S text or flock file -c text; None for other commands."""
    if name == "env":
        return _find_split_string(words, option_count)
    if name == "flock" and operands[:1] in (("-c",), ("--command",)):
        return " ".join(operands[1:2])
    return None


def _reads_commands(name: str, options: list[str], operands: tuple[str, ...]) -> bool:
    """Return whether the program is `sudo -i` or `sudo -s`, a shell that reads standard input."""
    return name == "sudo" and not operands and any(map(_opens_shell, options))


def _find_placeholder(words: tuple[str, ...]) -> str:
    """Return the text of xargs -I that each line replaces; empty if no option sets one."""
    placeholder = ""
    for option, next_word in zip(words, (*words[1:], ""), strict=False):
        match = re.fullmatch(r"(?:-I|-i|--replace)=?(.*)", option, re.DOTALL)
        if match:
            placeholder = match[1] or (next_word if option == "-I" else "") or "{}"
    return placeholder


def _detaches(name: str, options: list[str]) -> bool:
    """Return whether the program leaves the command to another process and does not wait for it."""
    if name == "setsid":
        return not {"-f", "--fork"}.isdisjoint(options)
    names = {option.partition("=")[0] for option in options}
    return name == "systemd-run" and _WAITING_OPTIONS.isdisjoint(names)


def _opens_shell(option: str) -> bool:
    is_short = not option.startswith("--")
    return option in _SHELL_OPTIONS or (is_short and ("i" in option[1:] or "s" in option[1:]))


def _find_split_string(words: tuple[str, ...], option_count: int) -> str | None:
    """Return the command of env -S "command"; None without such an option."""
    for at in range(option_count):
        is_option = words[at].startswith("-")
        if is_option and (text := _split_string(words[at:])) is not None:
            return text
    return None


def _split_string(words: tuple[str, ...]) -> str | None:
    """Return the command of env -S "command"; None if the first word is another option."""
    option = words[0]
    if option.startswith("--split-string"):
        text, has_text = option.partition("=")[2], "=" in option
    elif not option.startswith("--") and "S" in option:
        text = option.partition("S")[2]
        has_text = bool(text)
    else:
        return None
    if not has_text:
        text, words = " ".join(words[1:2]), words[1:]
    return " ".join((text, *map(quote, words[1:])))


def quote(word: str) -> str:
    """Return the word in single quotes, as a shell reads it back."""
    return "'" + word.replace("'", "'\\''") + "'"


def _unwrap_parallel(command: Unwrapped, words: tuple[str, ...], placeholder: str) -> Unwrapped:
    """Return the commands of `parallel command ::: argument argument`."""
    at = words.index(":::")
    template, arguments = " ".join(words[:at]), words[at + 1 :][:MAX_LINES]
    mark = placeholder or "{}"
    lines = [
        template.replace(mark, argument) if mark in template else f"{template} {argument}"
        for argument in arguments
    ]
    return replace(command, words=(), script="\n".join(lines)[:MAX_SCRIPT])


# -- shells ---------------------------------------------------------------------------------------


def _find_command_text(words: tuple[str, ...], short_option: str) -> str | None:
    """Return the value of -c or --command; None without such an option."""
    for at, word in enumerate(words):
        if word == "--command" or re.fullmatch(short_option, word):
            return " ".join(words[at + 1 : at + 2])
        if word.startswith("--command="):
            return word.partition("=")[2]
    return None


def _unwrap_text_program(name: str, command: Unwrapped) -> Unwrapped:
    """Return what `script -qc text file` or `sg group -c text` runs."""
    text = _find_command_text(command.words[1:], r"-[a-z]*c" if name == "script" else "-c")
    if text is not None:
        return replace(command, script=text)
    argument_count = _TEXT_PROGRAMS[name]
    text_words = command.words[argument_count + 1 :]
    if argument_count and text_words:
        return replace(command, script=" ".join(text_words))
    return command


def _unwrap_su(command: Unwrapped) -> Unwrapped:
    """Return what `su -c text` runs; without -c the commands are on standard input."""
    text = _find_command_text(command.words, r"-[a-z]*c")
    if text is not None:
        return replace(command, script=text)
    return replace(command, words=(), reads_stdin=True)


def _unwrap_shell_command(command: Unwrapped) -> Unwrapped:
    """Return what `bash -c text`, `bash file`, or bash with commands on standard input runs."""
    words = command.words
    letters = ""
    at = 1
    while at < len(words) and words[at][:1] in "-+" and words[at] not in ("-", "--"):
        letters += words[at][1:] if re.match(r"-(?!-)", words[at]) else ""
        if "n" in letters:  # checks the syntax of the script, and runs none of it
            return replace(command, words=())
        if re.fullmatch(r"-(?!-).*c", words[at], re.DOTALL):
            text_and_args = _skip_dashes(words[at + 1 :])
            return replace(command, script="".join(text_and_args[:1]), args=text_and_args[1:])
        at += 2 if _shell_option_takes_value(words[at]) else 1
    return _unwrap_shell_operands(command, _skip_dashes(words[at:]), takes_stdin="s" in letters)


def _unwrap_shell_operands(
    command: Unwrapped, operands: tuple[str, ...], takes_stdin: bool
) -> Unwrapped:
    if takes_stdin:
        return replace(command, words=(), reads_stdin=True, args=("", *operands))
    if not operands or operands[0] in ("-", "/dev/stdin"):
        return replace(command, words=(), reads_stdin=True, args=("", *operands[1:]))
    return replace(command, words=operands, is_file=True)


def _skip_dashes(words: tuple[str, ...]) -> tuple[str, ...]:
    return words[1:] if words[:1] == ("--",) else words


def _shell_option_takes_value(option: str) -> bool:
    """Return whether the next word is the option's value: -o pipefail, -euo pipefail."""
    return option in ("-O", "--rcfile", "--init-file") or bool(re.fullmatch(r"[-+][a-z]*o", option))
