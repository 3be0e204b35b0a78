"""Goes through a script as a shell would and says what it comes to: commands, written files, endless waits. Pure.

All branches are taken. Functions are followed where they are called, with their arguments; files that the script
writes are followed where they are run; so are `bash -c`, `eval`, heredocs for a shell, and `trap`. Nothing is executed.
"""

from __future__ import annotations

import re
from dataclasses import replace

from batchyard.doctor.shell import expand, wrappers
from batchyard.doctor.shell.disk import Disk, File, printed
from batchyard.doctor.shell.parse import parse
from batchyard.doctor.shell.trace import Around, Looped, Ran, Trace, Wrote
from batchyard.doctor.shell.tree import Command, Compound, Redirect, Script, Simple, Substitution, Variable, Word

#: commands looked at in one statement, all calls followed: beyond any real one
MAX_STEPS = 20_000
MAX_STEPS_IN_ALL = 100_000
FEW_STEPS = 20
MAX_CALLS = 12
#: begins the name under which what a pipe carries is kept for a moment
PIPE = "|"

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL | re.ASCII)
#: nothing of it is known
_UNKNOWN = re.compile(r"(?:\$\{[^}]*\}|\$\(\))+")
_COUNTS = re.compile(r"-(?:lt|le|gt|ge|eq|ne)$")


class Session:
    """Scripts that run one after the other, in the same shell."""

    def __init__(self, files: dict[str, File]) -> None:
        """``files``: what lies on the disk already, by path; what the scripts write is added to it."""
        self.trace = Trace()
        self._disk = Disk(files)
        self._functions: dict[str, Compound] = {}
        self._variables: dict[str, tuple[str, ...]] = {}
        self._traps: list[tuple[File, Around]] = []
        self._steps = 0
        self._limit = MAX_STEPS
        #: how deep in what may or may not happen
        self._branches = 0
        #: by how many places `shift` may have moved the arguments of the function that runs
        self._shifts = 0

    def run(self, text: str, first_line: int = 1, via: tuple[str, ...] = ()) -> None:
        """``via`` says who runs it, where that is not cloud-init itself."""
        script = parse(text, first_line)
        self.learn(script)
        for item in script:
            # One statement that leads to endless others does not hide those below it.
            self._limit = self._steps + (MAX_STEPS if self._steps < MAX_STEPS_IN_ALL else FEW_STEPS)
            self.script((item,), Around(via=via))
        self._limit += FEW_STEPS
        self._spring_traps()

    def run_file(self, path: str) -> None:
        self._run_file((path,), Around())
        self._spring_traps()

    def _spring_traps(self) -> None:
        """What a trap does comes last, when the script ends."""
        traps, self._traps = self._traps, []
        for source, around in traps:
            self._text(source, around, "trap")

    def learn(self, script: Script) -> None:
        """Functions may be defined below, or inside an `if`: all are known from the start."""
        for item in script:
            for pipeline in item.pipelines:
                for command in pipeline:
                    if isinstance(command, Compound):
                        if command.kind == "function":
                            self._functions[command.name] = command
                        for body in command.bodies:
                            self.learn(body)

    def script(self, script: Script, around: Around) -> None:
        for item in script:
            inside = replace(around, is_background=True) if item.is_background else around
            for at, pipeline in enumerate(item.pipelines):
                self._branches += bool(at)
                self._pipeline(pipeline, inside)
                self._branches -= bool(at)

    def _pipeline(self, commands: tuple[Command, ...], around: Around) -> None:
        output: File | None = around.stdin
        for at, command in enumerate(commands):
            pipe = (f"{PIPE}{self._steps}", True) if at < len(commands) - 1 and isinstance(command, Compound) else None
            inside = replace(around, stdin=output, stdout=around.stdout if at == len(commands) - 1 else pipe)
            output = self._command(command, inside)
            if pipe is not None:
                output = self._disk.files.pop(pipe[0], None)

    def _command(self, command: Command, around: Around) -> File | None:
        """Performs it; what it prints, where that is known."""
        self._steps += 1
        if self._steps > self._limit:
            return None
        if isinstance(command, Simple):
            return self._simple(command, around)
        if command.kind == "function":  # from here on it is this one, though another was learned
            self._functions[command.name] = command
        else:
            self._compound(command, self._redirected(command.redirects, around, command.line))
        return None

    def _compound(self, command: Compound, around: Around) -> None:
        if command.kind == "for":
            values = [text for words in self._readings(command.words, around) for text in words]
            if command.name and values:
                self._variables[command.name] = tuple(dict.fromkeys(values))[: expand.MAX_READINGS]
        start = len(self.trace.ran)
        middle = start
        may_not_happen = command.kind not in ("group", "subshell")
        folder = self._disk.folder
        self._branches += may_not_happen
        for at, body in enumerate(command.bodies):
            self.script(body, around)
            if at == 0:
                middle = len(self.trace.ran)
        self._branches -= may_not_happen
        if command.kind == "subshell":
            self._disk.folder = folder
        if command.kind in ("while", "until"):
            asks, does = self.trace.ran[start:middle], self.trace.ran[middle:]
            is_counted = around.is_bounded or any(map(_counts, (*asks, *does)))
            is_apart = around.is_background or around.is_detached
            self.trace.loops.append(Looped(tuple(asks), tuple(does), is_counted, is_apart, command.line))

    # -- simple commands --------------------------------------------------------------------------------------

    def _simple(self, command: Simple, around: Around) -> File | None:
        for name, items in command.arrays:
            values = tuple(text for words in self._readings(items, around) for text in words)
            self._variables[name] = values[: expand.MAX_READINGS] or ("",)
        for word in command.words:
            self._substitutions(word, around)
        around = self._redirected(command.redirects, around, command.line)
        output: File | None = None
        # A command that a function is given stands where the function is called.
        line = around.called_at if around.called_at and _is_given(command) else command.line
        for words in self._readings(command.words, around):
            self._steps += 1
            if all(_ASSIGNMENT.match(word) for word in words):
                self._assign(words)
            else:
                output = self._program(words, line, around)
        return output

    def _readings(self, words: tuple[Word, ...], around: Around) -> list[tuple[str, ...]]:
        return [reading for reading in expand.readings(words, self._variables, self._args(around)) if reading]

    def _args(self, around: Around) -> expand.Args:
        return expand.Args(around.args, self._shifts)

    def _substitutions(self, word: Word | None, around: Around) -> None:
        for piece in word.pieces if word else ():
            if isinstance(piece, Substitution):
                folder = self._disk.folder
                self.script(piece.script, replace(around, stdin=None, stdout=None))
                self._disk.folder = folder

    def _assign(self, words: tuple[str, ...]) -> None:
        for word in words:
            match = _ASSIGNMENT.match(word)
            before = self._variables.get(match[1], ()) if match else ()
            if match and not _UNKNOWN.fullmatch(match[3]):
                values = tuple(b + match[3] for b in before) if match[2] and before else (match[3],)
                # What is set in a branch may be what it was before.
                both = dict.fromkeys((*before, *values)) if self._branches else values
                self._variables[match[1]] = tuple(both)[: expand.MAX_READINGS]
            elif match and not self._branches:
                self._variables.pop(match[1], None)

    def _redirected(self, redirects: tuple[Redirect, ...], around: Around, line: int) -> Around:
        for redirect in redirects:
            self._substitutions(redirect.target, around)
            if redirect.heredoc is not None:
                body = redirect.heredoc.body
                text = body if redirect.heredoc.is_quoted else expand.fill(_unescaped(body), self._variables)
                around = replace(around, stdin=File(text, redirect.heredoc.line))
            elif redirect.target is not None and redirect.operator == "<<<":
                text = expand.text_of(redirect.target, self._variables, self._args(around))
                around = replace(around, stdin=File(text, line))
            elif redirect.target is not None and redirect.operator == "<":
                name = expand.text_of(redirect.target, self._variables, self._args(around))
                around = replace(around, stdin=self._disk.find(name))
            elif redirect.target is not None and redirect.operator in (">", ">>", ">|"):
                path = expand.text_of(redirect.target, self._variables, self._args(around))
                is_append = redirect.operator == ">>"
                around = replace(around, stdout=(path, is_append))
                if not is_append:
                    self._write(path, File("", line), False, None)
        return around

    # -- programs ---------------------------------------------------------------------------------------------

    def _program(self, words: tuple[str, ...], line: int, around: Around) -> File | None:
        bare = wrappers.strip(words)
        around = replace(
            around,
            is_detached=around.is_detached or bare.is_detached,
            is_bounded=around.is_bounded or bare.is_bounded,
        )
        if bare.script is not None:
            return self._text(File(bare.script, line), around, f"{wrappers.base(words[0])} -c")
        if bare.reads_stdin:
            return self._text(around.stdin, around, wrappers.base(words[0]))
        words = bare.words
        if bare.takes_stdin_words and around.stdin is not None:
            words += tuple(around.stdin.content.split()[:200])
        if not words:
            return None
        if bare.is_file and self._disk.find(words[0]) is not None:
            return self._run_file(words, around)
        return self._plain(words, line, around)

    def _plain(self, words: tuple[str, ...], line: int, around: Around) -> File | None:
        name = wrappers.base(words[0])
        if words[0] in self._functions:
            return self._call(words, line, around)
        if "/" in words[0] and self._disk.find(words[0]) is not None:
            return self._run_file(words, around)
        if name in (".", "source") and len(words) > 1:
            return self._run_file(words[1:], around)
        if name == "eval":
            return self._text(File(" ".join(words[1:]), line), around, "eval")
        if name == "trap" and len(words) > 2 and words[1] not in ("-", "--", ""):
            self._traps.append((File(words[1], line), around))
            return None
        self._builtin(name, words, around)
        ran = Ran(
            words,
            line,
            around.is_background,
            around.is_detached,
            around.is_bounded,
            around.via,
            len(self.trace.ran),
        )
        self.trace.ran.append(ran)
        return self._files_of(name, words, line, around)

    def _builtin(self, name: str, words: tuple[str, ...], around: Around) -> None:
        """What changes the shell itself."""
        if name in ("export", "local", "declare", "readonly", "typeset"):
            self._assign(words[1:])
        elif name in ("cd", "pushd"):
            self._disk.go(words[1] if len(words) > 1 else "")
        elif name == "shift":
            self._shifts += int(words[1]) if words[1:] and re.fullmatch("[0-9]", words[1]) else 1
        elif name == "read" and around.stdin is not None and len(words) > 1:
            values = [line.split()[0] for line in around.stdin.content.split("\n") if line.strip()]
            names = [word for word in words[1:] if re.fullmatch(r"[A-Za-z_]\w*", word)]
            if names and values:
                self._variables[names[0]] = tuple(dict.fromkeys(values))[: expand.MAX_READINGS]

    def _files_of(self, name: str, words: tuple[str, ...], line: int, around: Around) -> File | None:
        """What the few programs that everybody writes files with would write, or print."""
        if name in ("cp", "mv", "install", "ln") and len(words) > 2:
            source = around.stdin if words[-2] in ("/dev/stdin", "-") else self._disk.find(words[-2])
            target = words[-1] + wrappers.base(words[-2]) if words[-1].endswith("/") else words[-1]
            self._write(target, source or File("", line), False, source.content if source else None)
            return None
        output = printed(name, words, line, around.stdin, self._disk)
        if name == "tee":
            is_append = bool({"-a", "--append"} & set(words))
            for path in (word for word in words[1:] if not word.startswith("-")):
                self._write(path, output or File("", line), is_append, output.content if output else None)
        if around.stdout is not None:
            path, _ = around.stdout
            # `>` was noted when it was met: what several commands print into it comes after each other.
            if output is not None:
                self._write(path, output, True, output.content)
            return None
        return output

    def _write(self, name: str, file: File, is_append: bool, content: str | None) -> None:
        path = name if name.startswith(PIPE) else self._disk.path(name)
        if not name.startswith(PIPE):
            self.trace.wrote.append(Wrote(path, content, is_append, file.line))
        before = self._disk.files.get(path) if is_append else None
        if before is not None and before.content:
            file = File(before.content + file.content, before.line)
        self._disk.files[path] = file

    # -- what is run from within ------------------------------------------------------------------------------

    def _call(self, words: tuple[str, ...], line: int, around: Around) -> File | None:
        function = self._functions[words[0]]
        # Twice, since a function may define another of its own name.
        if around.via.count(words[0]) > 1 or len(around.via) >= MAX_CALLS:
            return None
        inside = replace(around, args=words[1:], called_at=line, via=(*around.via, words[0]))
        shifts, self._shifts = self._shifts, 0
        for body in function.bodies:
            self.script(body, inside)
        self._shifts = shifts
        return None

    def _run_file(self, words: tuple[str, ...], around: Around) -> File | None:
        file = self._disk.find(words[0])
        if file is not None:
            self._text(file, replace(around, args=words[1:]), words[0])
        return None

    def _text(self, source: File | None, around: Around, name: str) -> File | None:
        """What it prints is not known."""
        # A file that runs itself would never end; `bash -c` in `bash -c` is another text each time.
        if source is None or around.via.count(name) > 2 or len(around.via) >= MAX_CALLS:
            return None
        script = parse(source.content, source.line)
        self.learn(script)
        self.script(script, replace(around, via=(*around.via, name), stdin=None))
        return None


def _is_given(command: Simple) -> bool:
    """Whether a function's arguments say what to do: "$@", or sh -c "$*", or $1 as the program."""
    first = command.words[0].pieces[:1] if command.words else ()
    pieces = [piece for word in command.words for piece in word.pieces]
    is_all = any(isinstance(piece, Variable) and piece.name in ("@", "*") for piece in pieces)
    return is_all or any(isinstance(piece, Variable) and piece.name.isdigit() for piece in first)


def _counts(ran: Ran) -> bool:
    """It compares numbers, or gives up: the loop ends by itself."""
    return ran.program in ("exit", "return", "((", "let") or any(_COUNTS.match(word) for word in ran.words)


def _unescaped(body: str) -> str:
    return re.sub(r"\\([$`\\])", r"\1", body)
