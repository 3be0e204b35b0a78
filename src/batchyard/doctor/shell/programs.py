"""Follow the programs of a script: what they run, what they write, what they print. Pure.

``session`` follows the script itself.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import replace

from batchyard.doctor.shell import builtins, filters, interpreters, units, wrappers
from batchyard.doctor.shell.files import File, FileSystem
from batchyard.doctor.shell.parse import parse
from batchyard.doctor.shell.state import ShellState
from batchyard.doctor.shell.syntax_tree import Compound, Script
from batchyard.doctor.shell.trace import CommandRun, Context, FileWrite, Trace

#: nested calls of functions and scripts
MAX_CALLS = 12
#: files that one command runs
MAX_FILES = 20
#: first character of the temporary file that holds the content of a pipe
PIPE = "|"

_COPYING = frozenset({"cp", "mv", "install", "ln"})
_STDIN = frozenset({"/dev/stdin", "-", "/dev/fd/0", "/proc/self/fd/0"})
_DECLARING = frozenset({"export", "local", "declare", "readonly", "typeset"})
_READING = frozenset({"read", "mapfile", "readarray"})
#: a text for a shell that begins with the output of a program, or with a variable
_UNKNOWN_SCRIPT = re.compile(r"\s*(?:\$\(\)|\$\{\w+\})")
_RUNS_OUTPUT = "runs commands that another program prints, such as a download"


class ProgramFollower(ABC):
    def __init__(self, files: dict[str, File]) -> None:
        self.trace = Trace()
        self.files = FileSystem(files)
        self.state = ShellState()
        self.functions: dict[str, Compound] = {}
        self.traps: list[tuple[File, Context]] = []
        #: number of commands whose output is unknown
        self.unknown_outputs = 0
        #: files that are written, and whose content is not known
        self.unknown_files: set[str] = set()

    @abstractmethod
    def follow_script(self, script: Script, context: Context) -> None:
        """Follow the commands of a parsed script."""

    @abstractmethod
    def define_functions(self, script: Script) -> None:
        """Store the functions that the script defines anywhere."""

    # -- programs ---------------------------------------------------------------------------------

    def run_program(self, words: tuple[str, ...], line: int, context: Context) -> File | None:
        """Follow a command; return its output, None if that is unknown."""
        command = wrappers.unwrap(words)
        context = replace(
            context,
            is_detached=context.is_detached or command.is_detached,
            is_bounded=context.is_bounded or command.is_bounded,
        )
        takes_stdin = command.takes_stdin_words or command.placeholder
        stdin = context.stdin.content if takes_stdin and context.stdin else None
        output = None
        with self.state.assigned_for_command(command.assignments):
            for unwrapped in wrappers.feed_stdin(command, stdin):
                name = wrappers.program_name(words[0])
                output = self._run_unwrapped(unwrapped, name, line, context)
        return output

    def _run_unwrapped(
        self, command: wrappers.Unwrapped, name: str, line: int, context: Context
    ) -> File | None:
        inner = replace(context, args=command.args[1:], zero="".join(command.args[:1]))
        if command.script is not None:
            if _UNKNOWN_SCRIPT.match(command.script):
                self.trace.not_followed.append((line, _RUNS_OUTPUT))
            with self.state.own_arguments():
                return self.run_text(File(command.script, line), inner, f"{name} -c")
        if command.reads_stdin:
            if context.has_unknown_stdin:
                self.trace.not_followed.append((line, _RUNS_OUTPUT))
            with self.state.own_arguments():
                return self.run_text(context.stdin, inner, name)
        if not command.words:
            return None
        first = command.words[0]
        if command.is_file and (first in _STDIN or self._has_content(first)):
            return self._run_shell_file(command.words, context)
        if command.is_file:
            self._note_unknown_script(first, line, is_shell_script=True)
        return self._run_plain(command.words, line, context)

    def _run_plain(self, words: tuple[str, ...], line: int, context: Context) -> File | None:
        name = wrappers.program_name(words[0])
        if words[0] in self.functions:
            return self._call_function(words, line, context)
        if name in (".", "source") and len(words) > 1:
            self._note_unknown_script(words[1], line, is_shell_script=False)
            return self._run_shell_file(words[1:], context)
        if name == "eval":
            if _UNKNOWN_SCRIPT.match(" ".join(words[1:])):
                self.trace.not_followed.append((line, _RUNS_OUTPUT))
            return self.run_text(File(" ".join(words[1:]), line), context, "eval")
        path = self._find_script(words[0])
        if path is not None:
            return self.run_file((path, *words[1:]), context)
        self._note_unknown_script(words[0], line, is_shell_script=words[0].endswith(".sh"))
        if name == "trap" and self._set_trap(words, line, context):
            return None
        self._change_state(name, words, context)
        unit = self._find_unit(words)
        self._record(words, line, context, unit)
        self._run_inner_commands(name, words, line, context)
        if unit is not None:
            self._run_unit(unit, units.waits(words), context)
        return self._handle_output(name, words, line, context)

    def _note_unknown_script(self, word: str, line: int, is_shell_script: bool) -> None:
        """Note a script that was downloaded, or that only the node has."""
        if "/" not in word and not is_shell_script:
            return
        is_known = word in _STDIN or self._has_content(word)
        is_unknown_file = self.files.absolute(word) in self.unknown_files
        if (is_unknown_file or is_shell_script) and not is_known and not word.startswith("-"):
            script = "a script" if word.startswith("/dev/fd/") else word[:60]
            self.trace.not_followed.append((line, f"runs {script}, whose text is not known"))

    def _record(
        self, words: tuple[str, ...], line: int, context: Context, unit: units.Unit | None
    ) -> None:
        is_waiting_for_late = unit is not None and unit.late and units.waits(words)
        self.trace.commands.append(
            CommandRun(
                words,
                line,
                is_background=context.is_not_awaited,
                is_detached=context.is_detached,
                is_bounded=context.is_bounded,
                via=context.via,
                step=len(self.trace.commands),
                job=context.job,
                folder=self.files.folder,
                waits_for=(unit.name, unit.late) if unit and is_waiting_for_late else None,
            )
        )

    def _find_script(self, word: str) -> str | None:
        """Return the path of the script that is run by its path, or by its bare name."""
        if "/" in word:
            return word if self._has_content(word) else None
        if not re.fullmatch(r"[\w.+-]{1,100}", word) or not self.files.files:
            return None
        folders = [
            folder
            for value in self.state.variables.get("PATH", ())
            for folder in value.split(":")[:50]
        ]
        return self.files.find_program(word, [name for name in folders if name.startswith("/")])

    def _has_content(self, name: str) -> bool:
        file = self.files.find(name)
        return file is not None and bool(file.content)

    def _set_trap(self, words: tuple[str, ...], line: int, context: Context) -> bool:
        """Store the command of a trap; return False if `trap` sets none."""
        operands = words[2:] if words[1:2] == ("--",) else words[1:]
        if len(operands) < 2 or operands[0] in ("-", ""):
            return False
        self.traps.append((File(operands[0], line), context))
        return True

    # -- commands that a program runs -------------------------------------------------------------

    def _run_inner_commands(
        self, name: str, words: tuple[str, ...], line: int, context: Context
    ) -> None:
        if interpreters.is_interpreter(name):
            self._note_other_language(name, words, line, context)
        elif name == "find":
            self._run_find(words, line, context)
        elif name == "run-parts" and len(words) > 1:
            for path in self.files.list_below(words[-1])[:MAX_FILES]:
                self.run_file((path,), context)

    def _note_other_language(
        self, name: str, words: tuple[str, ...], line: int, context: Context
    ) -> None:
        scripts = [context.stdin, *map(self.files.find, words[1:])]
        texts = [*words[1:], *(script.content for script in scripts if script is not None)]
        if interpreters.may_start_programs(texts):
            self.trace.not_followed.append((line, interpreters.describe(name)))

    def _run_find(self, words: tuple[str, ...], line: int, context: Context) -> None:
        """Follow the command of find folder -exec command {} ;"""
        at = next((i for i, word in enumerate(words) if word in ("-exec", "-execdir", "-ok")), None)
        if at is None:
            return
        command = words[at + 1 :]
        stop = next((i for i, word in enumerate(command) if word in (";", "+")), len(command))
        command = command[:stop]
        if not command:
            return
        paths = self.files.list_below(words[1]) if "{}" in command else []
        for path in paths[:MAX_FILES] or ["{}"]:
            filled = tuple(path if word == "{}" else word for word in command)
            self.run_program(filled, line, context)

    def _find_unit(self, words: tuple[str, ...]) -> units.Unit | None:
        """Return the first unit that the command starts and a script wrote."""
        started = (units.find(name, self.files) for name in units.find_started(words))
        return next((unit for unit in started if unit is not None), None)

    def _run_unit(self, unit: units.Unit, is_waiting: bool, context: Context) -> None:
        for command, line, is_waited_for in unit.commands[:MAX_FILES]:
            is_detached = context.is_detached or not is_waited_for or not is_waiting
            inner = replace(context, is_detached=is_detached)
            self.run_text(File(command, line), inner, unit.name)

    # -- the shell's own state --------------------------------------------------------------------

    def _change_state(self, name: str, words: tuple[str, ...], context: Context) -> None:
        if name in _DECLARING:
            self.state.assign(words[1:])
        elif name in ("cd", "pushd"):
            self.files.change_folder("".join(words[1:2]))
        elif name == "shift":
            count = "".join(words[1:2])
            self.state.shifts += int(count) if re.fullmatch("[0-9]", count) else 1
        elif name == "set":
            self._set_arguments(words)
        elif name == "printf":
            self._set_printf_variable(words)
        elif name in _READING and context.stdin is not None:
            self._read_variables(name, words, context.stdin.content)

    def _set_printf_variable(self, words: tuple[str, ...]) -> None:
        if words[1:2] == ("-v",) and len(words) > 3:
            text = filters.format_printf(words[3], words[4:])
            self.state.assign((f"{words[2]}={text}",))

    def _set_arguments(self, words: tuple[str, ...]) -> None:
        if "--" in words:
            self.state.set_arguments(words[words.index("--") + 1 :])
        elif len(words) > 1 and words[1][:1] not in ("-", "+"):
            self.state.set_arguments(words[1:])

    def _read_variables(self, name: str, words: tuple[str, ...], text: str) -> None:
        if name == "read":
            separators = self.state.variables.get("IFS")
            variables = builtins.read(words, text, separators[0] if separators else None)
        else:
            variables = builtins.mapfile(words, text)
        for variable, values in variables.items():
            self.state.set_values(variable, values)

    # -- files ------------------------------------------------------------------------------------

    def _handle_output(
        self, name: str, words: tuple[str, ...], line: int, context: Context
    ) -> File | None:
        """Write the program's files; return its output unless that goes into a file."""
        if name in _COPYING and len(words) > 2:
            source = context.stdin if words[-2] in _STDIN else self.files.find(words[-2])
            target = self.files.copy_target(words[-1], words[-2])
            self._write_known_or_empty(target, source, line, is_append=False)
            return None
        if (download := filters.find_download(name, words)) is not None:
            self._write_unknown(self.files.copy_target(*download), line)
        output = filters.find_output(name, words, line, context.stdin, self.files)
        if output is not None:
            output = File(self.state.limit_text(output.content), output.line)
        if name in ("tee", "dd", "sponge"):
            self._write_stdin(name, words, line, context.stdin)
        if context.stdout is None:
            return output
        # `>` has emptied the file already, so the outputs of several commands are appended.
        if output is not None:
            self.write(context.stdout[0], output, True, output.content)
        elif name not in filters.QUIET:
            self.unknown_outputs += 1
        return None

    def _write_stdin(
        self, name: str, words: tuple[str, ...], line: int, stdin: File | None
    ) -> None:
        """Write the files to which tee, dd or sponge copies its standard input."""
        paths = [word for word in words[1:] if not word.startswith("-")]
        if name == "dd":
            targets = [word.removeprefix("of=") for word in words[1:] if word.startswith("of=")]
            paths = [path for path in targets if not path.startswith("/dev/")]
            stdin = None if any(word.startswith("if=") for word in words) else stdin
        is_append = bool({"-a", "--append", "oflag=append"} & set(words))
        for path in paths:
            self._write_known_or_empty(path, stdin, line, is_append)

    def _write_known_or_empty(
        self, name: str, source: File | None, line: int, is_append: bool
    ) -> None:
        content = source.content if source else None
        self.write(name, source or File("", line), is_append, content)

    def _write_unknown(self, name: str, line: int) -> None:
        path = self.files.absolute(name)
        self.unknown_files.add(path)
        self.trace.writes.append(FileWrite(path, None, False, line))
        self.files.files.pop(path, None)

    def write(self, name: str, file: File, is_append: bool, content: str | None) -> None:
        """Write a file; ``content`` is recorded in the trace, None if it is unknown."""
        is_pipe = name.startswith(PIPE)
        path = name if is_pipe else self.files.absolute(name)
        if not is_pipe:
            self.trace.writes.append(FileWrite(path, content, is_append, file.line))
        old_file = self.files.files.get(path) if is_append else None
        if old_file is not None and old_file.content:
            text = self.state.limit_text(old_file.content + file.content)
            file = File(text, old_file.line)
        self.files.files[path] = file

    # -- functions, files and texts of shell commands ---------------------------------------------

    def _call_function(self, words: tuple[str, ...], line: int, context: Context) -> File | None:
        function = self.functions[words[0]]
        # Twice, since a function may define another of its own name.
        if context.via.count(words[0]) > 1 or len(context.via) >= MAX_CALLS:
            return None
        via = (*context.via, words[0])
        inner = replace(context, args=words[1:], called_at=line, via=via)
        with self.state.own_arguments():
            for body in function.bodies:
                self.follow_script(body, inner)
        return None

    def _run_shell_file(self, words: tuple[str, ...], context: Context) -> File | None:
        """Follow a file of shell commands; the further words are its arguments."""
        file = context.stdin if words[0] in _STDIN else self.files.find(words[0])
        if file is not None:
            with self.state.own_arguments():
                self.run_text(file, replace(context, args=words[1:]), words[0])
        return None

    def run_file(self, words: tuple[str, ...], context: Context) -> File | None:
        """Follow a file that is run by its path, unless its #! line names another language."""
        file = self.files.find(words[0])
        interpreter = interpreters.other_interpreter(file.content) if file is not None else ""
        if file is not None and interpreter:
            self.trace.not_followed.append((file.line, interpreters.describe(interpreter)))
            return None
        return self._run_shell_file(words, context)

    def run_text(self, source: File | None, context: Context, name: str) -> File | None:
        """Follow shell commands. Their output is unknown, except into a file or a pipe."""
        # A file that runs itself would never end; `bash -c` in `bash -c` is another text each time.
        is_repeated = bool(name) and context.via.count(name) > 2
        if source is None or is_repeated or len(context.via) >= MAX_CALLS:
            return None
        script = parse(self.state.limit_script(source.content), source.line)
        self.define_functions(script)
        via = (*context.via, name) if name else context.via
        inner = replace(context, via=via, stdin=None, has_unknown_stdin=False)
        self.follow_script(script, inner)
        return None
