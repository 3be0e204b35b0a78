"""Goes through a script as a shell would and says what it comes to: commands, written files, endless waits. Pure.

All branches are taken. Functions are followed where they are called, with their arguments; files that the script
writes are followed where they are run; so are `bash -c`, `eval`, heredocs for a shell, and `trap`. Nothing is executed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from batchyard.doctor.shell import expand, wrappers
from batchyard.doctor.shell.parse import parse
from batchyard.doctor.shell.tree import Command, Compound, Redirect, Script, Simple, Substitution, Word

#: commands looked at in one script, all calls followed: beyond any real one
MAX_STEPS = 20_000
MAX_CALLS = 12

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL | re.ASCII)
_COUNTS = re.compile(r"-(?:lt|le|gt|ge|eq|ne)$")


@dataclass(frozen=True, slots=True)
class Ran:
    """A command as far as it can be known; what cannot stands as ${name} or $()."""

    words: tuple[str, ...]
    line: int
    #: the script goes on without waiting for it, unless it says `wait`
    is_background: bool = False
    #: another process runs it, for which nobody waits
    is_detached: bool = False
    #: a clock ends it
    is_bounded: bool = False
    #: the functions and files through which it was reached
    via: tuple[str, ...] = ()
    #: its place in the order of things
    step: int = 0

    @property
    def program(self) -> str:
        return wrappers.base(self.words[0]) if self.words else ""


@dataclass(frozen=True, slots=True)
class Wrote:
    path: str
    #: None where it is not known
    content: str | None
    is_append: bool
    line: int


@dataclass(frozen=True, slots=True)
class Looped:
    """A `while` or `until` with what it asks, and what it does meanwhile."""

    asks: tuple[Ran, ...]
    does: tuple[Ran, ...]
    is_counted: bool
    is_background: bool
    line: int


@dataclass(frozen=True, slots=True)
class File:
    """Text that a script wrote, or hands on; ``line`` is where it stands."""

    content: str
    line: int


@dataclass(slots=True)
class Trace:
    ran: list[Ran] = field(default_factory=list)
    wrote: list[Wrote] = field(default_factory=list)
    loops: list[Looped] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Around:
    """What holds for a command from outside."""

    args: tuple[str, ...] = ()
    is_background: bool = False
    is_detached: bool = False
    is_bounded: bool = False
    via: tuple[str, ...] = ()
    stdin: File | None = None
    #: where its output goes: path, whether appended
    stdout: tuple[str, bool] | None = None


def follow(text: str, first_line: int = 1, files: dict[str, File] | None = None) -> Trace:
    """What one script comes to."""
    session = Session({} if files is None else files)
    session.run(text, first_line)
    return session.trace


class Session:
    """Scripts that run one after the other, in the same shell."""

    def __init__(self, files: dict[str, File]) -> None:
        """``files``: what lies on the disk already, by path; what the scripts write is added to it."""
        self.trace = Trace()
        self._files = files
        self._functions: dict[str, Compound] = {}
        self._variables: dict[str, tuple[str, ...]] = {}
        self._steps = 0

    def run(self, text: str, first_line: int = 1) -> None:
        script = parse(text, first_line)
        self.learn(script)
        self.script(script, Around())

    def run_file(self, path: str) -> None:
        self._run_file((path,), Around())

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
            for pipeline in item.pipelines:
                self._pipeline(pipeline, inside)

    def _pipeline(self, commands: tuple[Command, ...], around: Around) -> None:
        output: File | None = around.stdin
        for at, command in enumerate(commands):
            is_last = at == len(commands) - 1
            inside = replace(around, stdin=output, stdout=around.stdout if is_last else None)
            output = self._command(command, inside)

    def _command(self, command: Command, around: Around) -> File | None:
        """Performs it; what it prints, where that is known."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            return None
        if isinstance(command, Simple):
            return self._simple(command, around)
        if command.kind != "function":
            self._compound(command, self._redirected(command.redirects, around, command.line))
        return None

    def _compound(self, command: Compound, around: Around) -> None:
        if command.kind == "for":
            values = [text for words in self._readings(command.words, around) for text in words]
            if command.name and values:
                self._variables[command.name] = tuple(dict.fromkeys(values))[: expand.MAX_READINGS]
        start = len(self.trace.ran)
        middle = start
        for at, body in enumerate(command.bodies):
            self.script(body, around)
            if at == 0:
                middle = len(self.trace.ran)
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
        for words in self._readings(command.words, around):
            if all(_ASSIGNMENT.match(word) for word in words):
                self._assign(words)
            else:
                output = self._program(words, command.line, around)
        return output

    def _readings(self, words: tuple[Word, ...], around: Around) -> list[tuple[str, ...]]:
        return [reading for reading in expand.readings(words, self._variables, around.args) if reading]

    def _substitutions(self, word: Word | None, around: Around) -> None:
        for piece in word.pieces if word else ():
            if isinstance(piece, Substitution):
                self.script(piece.script, replace(around, stdin=None, stdout=None))

    def _assign(self, words: tuple[str, ...]) -> None:
        for word in words:
            match = _ASSIGNMENT.match(word)
            if match and "$" not in match[3]:
                before = self._variables.get(match[1], ()) if match[2] else ()
                self._variables[match[1]] = tuple(b + match[3] for b in before) or (match[3],)
            elif match:
                self._variables.pop(match[1], None)

    def _redirected(self, redirects: tuple[Redirect, ...], around: Around, line: int) -> Around:
        for redirect in redirects:
            self._substitutions(redirect.target, around)
            if redirect.heredoc is not None:
                body = redirect.heredoc.body
                text = body if redirect.heredoc.is_quoted else expand.fill(_unescaped(body), self._variables)
                around = replace(around, stdin=File(text, redirect.heredoc.line))
            elif redirect.target is not None and redirect.operator == "<<<":
                text = expand.text_of(redirect.target, self._variables, around.args)
                around = replace(around, stdin=File(text, line))
            elif redirect.target is not None and redirect.operator in (">", ">>", ">|"):
                path = expand.text_of(redirect.target, self._variables, around.args)
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
        if bare.is_file and words[0] in self._files:
            return self._run_file(words, around)
        return self._plain(words, line, around)

    def _plain(self, words: tuple[str, ...], line: int, around: Around) -> File | None:
        name = wrappers.base(words[0])
        if words[0] in self._functions:
            return self._call(words, around)
        if words[0] in self._files:
            return self._run_file(words, around)
        if name in (".", "source") and len(words) > 1:
            return self._run_file(words[1:], around)
        if name == "eval":
            return self._text(File(" ".join(words[1:]), line), around, "eval")
        if name == "trap" and len(words) > 2 and words[1] not in ("-", "--", ""):
            return self._text(File(words[1], line), around, "trap")
        if name in ("export", "local", "declare", "readonly", "typeset"):
            self._assign(words[1:])
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

    def _files_of(self, name: str, words: tuple[str, ...], line: int, around: Around) -> File | None:
        """What the few programs that everybody writes files with would write, or print."""
        if name in ("cp", "mv", "install", "ln") and len(words) > 2:
            source = around.stdin if words[-2] in ("/dev/stdin", "-") else self._files.get(words[-2])
            self._write(words[-1], source or File("", line), False, source.content if source else None)
            return None
        output = _printed(name, words, line, around.stdin, self._files)
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

    def _write(self, path: str, file: File, is_append: bool, content: str | None) -> None:
        self.trace.wrote.append(Wrote(path, content, is_append, file.line))
        before = self._files.get(path) if is_append else None
        if before is not None and before.content:
            self._files[path] = File(before.content + file.content, before.line)
        else:
            self._files[path] = file

    # -- what is run from within ------------------------------------------------------------------------------

    def _call(self, words: tuple[str, ...], around: Around) -> File | None:
        function = self._functions[words[0]]
        if words[0] in around.via or len(around.via) >= MAX_CALLS:
            return None
        inside = replace(around, args=words[1:], via=(*around.via, words[0]))
        for body in function.bodies:
            self.script(body, inside)
        return None

    def _run_file(self, words: tuple[str, ...], around: Around) -> File | None:
        file = self._files.get(words[0])
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


def _counts(ran: Ran) -> bool:
    """It compares numbers, or gives up: the loop ends by itself."""
    return ran.program in ("exit", "return", "((", "let") or any(_COUNTS.match(word) for word in ran.words)


def _unescaped(body: str) -> str:
    return re.sub(r"\\([$`\\])", r"\1", body)


def _printed(name: str, words: tuple[str, ...], line: int, stdin: File | None, files: dict[str, File]) -> File | None:
    if name == "echo":
        flags = {"-n", "-e", "-ne", "-en", "-E"}
        texts = [word for at, word in enumerate(words[1:]) if at or word not in flags]
        return File(" ".join(texts).replace("\\n", "\n") + "\n", line)
    if name == "printf" and len(words) > 1:
        text = words[1]
        for value in words[2:]:
            text = text.replace("%s", value, 1) if "%s" in text else f"{text}{value}\n"
        return File(text.replace("\\n", "\n"), line)
    if name == "tee":
        return stdin
    if name == "cat":
        names = [word for word in words[1:] if not word.startswith("-")]
        known = [files[name] for name in names if name in files]
        if not names:
            return stdin
        return File("".join(file.content for file in known), known[0].line) if known else None
    return None
