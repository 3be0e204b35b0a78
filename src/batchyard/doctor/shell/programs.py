"""What the programs of a script come to: the shells and files they run, what they write. Pure.

``follow`` goes through the script itself.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import replace

from batchyard.doctor.shell import builtins, filters, interpreters, units, wrappers
from batchyard.doctor.shell.disk import Disk, File
from batchyard.doctor.shell.memory import Memory
from batchyard.doctor.shell.parse import parse
from batchyard.doctor.shell.trace import Around, Ran, Trace, Wrote
from batchyard.doctor.shell.tree import Compound, Script

MAX_CALLS = 12
#: files that one command runs
MAX_FILES = 20
#: begins the name under which what a pipe carries is kept for a moment
PIPE = "|"

_COPIES = frozenset({"cp", "mv", "install", "ln"})
_STDIN = frozenset({"/dev/stdin", "-", "/dev/fd/0", "/proc/self/fd/0"})
_DECLARES = frozenset({"export", "local", "declare", "readonly", "typeset"})


class Programs(ABC):
    def __init__(self, files: dict[str, File]) -> None:
        self.trace = Trace()
        self.disk = Disk(files)
        self.memory = Memory()
        self.functions: dict[str, Compound] = {}
        self.traps: list[tuple[File, Around]] = []
        #: commands that printed something that is not known
        self.holes = 0

    @abstractmethod
    def script(self, script: Script, around: Around) -> None:
        """Goes through the commands."""

    @abstractmethod
    def learn(self, script: Script) -> None:
        """Its functions."""

    # -- programs ---------------------------------------------------------------------------------------------

    def program(self, words: tuple[str, ...], line: int, around: Around) -> File | None:
        """Performs it; what it prints, where that is known."""
        bare = wrappers.strip(words)
        around = replace(
            around,
            is_detached=around.is_detached or bare.is_detached,
            is_bounded=around.is_bounded or bare.is_bounded,
        )
        takes_stdin = bare.takes_stdin_words or bare.placeholder
        commands = wrappers.fed(
            bare, around.stdin.content if takes_stdin and around.stdin else None
        )
        output = None
        with self.memory.lent(bare.assignments):
            for command in commands:
                output = self._bare(command, wrappers.base(words[0]), line, around)
        return output

    def _bare(self, bare: wrappers.Bare, name: str, line: int, around: Around) -> File | None:
        inside = replace(around, args=bare.args[1:], zero="".join(bare.args[:1]))
        if bare.script is not None:
            with self.memory.frame():
                return self.text(File(bare.script, line), inside, f"{name} -c")
        if bare.reads_stdin:
            with self.memory.frame():
                return self.text(around.stdin, inside, name)
        if not bare.words:
            return None
        if bare.is_file and (bare.words[0] in _STDIN or self._has(bare.words[0])):
            return self.run_words(bare.words, around)
        return self._plain(bare.words, line, around)

    def _plain(self, words: tuple[str, ...], line: int, around: Around) -> File | None:
        name = wrappers.base(words[0])
        if words[0] in self.functions:
            return self._call(words, line, around)
        if name in (".", "source") and len(words) > 1:
            return self.run_words(words[1:], around)
        if name == "eval":
            return self.text(File(" ".join(words[1:]), line), around, "eval")
        path = self._path(words[0])
        if path is not None:
            return self._execute((path, *words[1:]), around)
        if name == "trap":
            rest = words[2:] if words[1:2] == ("--",) else words[1:]
            if len(rest) > 1 and rest[0] not in ("-", ""):
                self.traps.append((File(rest[0], line), around))
                return None
        self._builtin(name, words, around)
        unit = self._unit(words)
        late = (unit.name, unit.late) if unit and unit.late and units.waits(words) else None
        ran = Ran(
            words,
            line,
            around.goes_on,
            around.is_detached,
            around.is_bounded,
            around.via,
            len(self.trace.ran),
            around.job,
            self.disk.folder,
            late,
        )
        self.trace.ran.append(ran)
        self._from_within(name, words, unit, line, around)
        return self._files_of(name, words, line, around)

    def _path(self, word: str) -> str | None:
        """The file of a script that is run by its path, or by its name alone."""
        if "/" in word:
            return word if self._has(word) else None
        if not re.fullmatch(r"[\w.+-]{1,100}", word) or not self.disk.files:
            return None
        folders = [
            folder
            for value in self.memory.variables.get("PATH", ())
            for folder in value.split(":")[:50]
        ]
        return self.disk.program(word, [folder for folder in folders if folder.startswith("/")])

    def _has(self, name: str) -> bool:
        """A file of which something is known."""
        file = self.disk.find(name)
        return file is not None and bool(file.content)

    def _unit(self, words: tuple[str, ...]) -> units.Unit | None:
        for name in units.begun(words):
            if (unit := units.find(name, self.disk)) is not None:
                return unit
        return None

    def _from_within(
        self, name: str, words: tuple[str, ...], unit: units.Unit | None, line: int, around: Around
    ) -> None:
        """What the program runs in turn."""
        if interpreters.is_interpreter(name):
            files = [around.stdin, *map(self.disk.find, words[1:])]
            texts = [*words[1:], *(file.content for file in files if file is not None)]
            if interpreters.may_start_programs(texts):
                self.trace.not_followed.append((line, name))
        elif name == "find":
            self._find(words, line, around)
        elif name == "run-parts" and len(words) > 1:
            for path in self.disk.below(words[-1])[:MAX_FILES]:
                self._execute((path,), around)
        if unit is not None:
            for command, at, is_waited_for in unit.commands[:MAX_FILES]:
                is_apart = around.is_detached or not is_waited_for or not units.waits(words)
                self.text(File(command, at), replace(around, is_detached=is_apart), unit.name)

    def _find(self, words: tuple[str, ...], line: int, around: Around) -> None:
        """find folder -exec command {} ;"""
        at = next((i for i, word in enumerate(words) if word in ("-exec", "-execdir", "-ok")), None)
        if at is None:
            return
        command = words[at + 1 :]
        stop = next((i for i, word in enumerate(command) if word in (";", "+")), len(command))
        command = command[:stop]
        names = self.disk.below(words[1]) if len(words) > 1 and "{}" in command else []
        for path in names[:MAX_FILES] or ["{}"]:
            if command:
                self.program(
                    tuple(path if word == "{}" else word for word in command), line, around
                )

    def _builtin(self, name: str, words: tuple[str, ...], around: Around) -> None:
        """What changes the shell itself."""
        memory = self.memory
        if name in _DECLARES:
            memory.assign(words[1:])
        elif name in ("cd", "pushd"):
            self.disk.go(words[1] if len(words) > 1 else "")
        elif name == "shift":
            memory.shifts += int(words[1]) if words[1:] and re.fullmatch("[0-9]", words[1]) else 1
        elif name == "set" and len(words) > 1:
            if "--" in words:
                memory.set_arguments(words[words.index("--") + 1 :])
            elif words[1][:1] not in ("-", "+"):
                memory.set_arguments(words[1:])
        elif name == "printf" and words[1:2] == ("-v",) and len(words) > 3:
            memory.assign((f"{words[2]}={filters.formatted(words[3], words[4:])}",))
        elif name in ("read", "mapfile", "readarray") and around.stdin is not None:
            self._read(name, words, around.stdin.content)

    def _read(self, name: str, words: tuple[str, ...], text: str) -> None:
        separators = self.memory.variables.get("IFS")
        found = (
            builtins.read(words, text, separators[0] if separators else None)
            if name == "read"
            else builtins.mapfile(words, text)
        )
        for variable, values in found.items():
            self.memory.learn(variable, values)

    # -- files ------------------------------------------------------------------------------------------------

    def _files_of(
        self, name: str, words: tuple[str, ...], line: int, around: Around
    ) -> File | None:
        """What the few programs that everybody writes files with would write, or print."""
        if name in _COPIES and len(words) > 2:
            source = around.stdin if words[-2] in _STDIN else self.disk.find(words[-2])
            target = self.disk.inside(words[-1], words[-2])
            self.write(target, source or File("", line), False, source.content if source else None)
            return None
        if (fetched := filters.fetched(name, words)) is not None:
            self._lose(self.disk.inside(*fetched), line)
        output = filters.printed(name, words, line, around.stdin, self.disk)
        if output is not None:
            output = File(self.memory.fit(output.content), output.line)
        if name in ("tee", "dd", "sponge"):
            self._poured(name, words, line, around.stdin)
        if around.stdout is not None:
            # `>` was noted when it was met: what several commands print into it comes after each other.
            if output is not None:
                self.write(around.stdout[0], output, True, output.content)
            elif name not in filters.QUIET:
                self.holes += 1
            return None
        return output

    def _poured(self, name: str, words: tuple[str, ...], line: int, stdin: File | None) -> None:
        """What writes its standard input to files."""
        paths = [word for word in words[1:] if not word.startswith("-")]
        if name == "dd":
            paths = [
                word[3:]
                for word in words[1:]
                if word.startswith("of=") and not word.startswith("of=/dev/")
            ]
            stdin = None if any(word.startswith("if=") for word in words) else stdin
        is_append = bool({"-a", "--append", "oflag=append"} & set(words))
        for path in paths:
            self.write(path, stdin or File("", line), is_append, stdin.content if stdin else None)

    def _lose(self, name: str, line: int) -> None:
        """Something that is not known is written there."""
        path = self.disk.path(name)
        self.trace.wrote.append(Wrote(path, None, False, line))
        self.disk.files.pop(path, None)

    def write(self, name: str, file: File, is_append: bool, content: str | None) -> None:
        path = name if name.startswith(PIPE) else self.disk.path(name)
        if not name.startswith(PIPE):
            self.trace.wrote.append(Wrote(path, content, is_append, file.line))
        before = self.disk.files.get(path) if is_append else None
        if before is not None and before.content:
            file = File(self.memory.fit(before.content + file.content), before.line)
        self.disk.files[path] = file

    # -- what is run from within ------------------------------------------------------------------------------

    def _call(self, words: tuple[str, ...], line: int, around: Around) -> File | None:
        function = self.functions[words[0]]
        # Twice, since a function may define another of its own name.
        if around.via.count(words[0]) > 1 or len(around.via) >= MAX_CALLS:
            return None
        inside = replace(around, args=words[1:], called_at=line, via=(*around.via, words[0]))
        with self.memory.frame():
            for body in function.bodies:
                self.script(body, inside)
        return None

    def run_words(self, words: tuple[str, ...], around: Around) -> File | None:
        """A file of shell commands, with its arguments."""
        file = around.stdin if words[0] in _STDIN else self.disk.find(words[0])
        if file is not None:
            with self.memory.frame():
                self.text(file, replace(around, args=words[1:]), words[0])
        return None

    def _execute(self, words: tuple[str, ...], around: Around) -> File | None:
        """A file, by the interpreter that its first line names."""
        file = self.disk.find(words[0])
        interpreter = interpreters.other_interpreter(file.content) if file is not None else ""
        if file is not None and interpreter:
            self.trace.not_followed.append((file.line, interpreter))
            return None
        return self.run_words(words, around)

    def text(self, source: File | None, around: Around, name: str) -> File | None:
        """Shell commands. What they print is not known, but for what they print into a file or a pipe."""
        # A file that runs itself would never end; `bash -c` in `bash -c` is another text each time.
        if source is None or (name and around.via.count(name) > 2) or len(around.via) >= MAX_CALLS:
            return None
        script = parse(self.memory.script(source.content), source.line)
        self.learn(script)
        via = (*around.via, name) if name else around.via
        self.script(script, replace(around, via=via, stdin=None))
        return None
