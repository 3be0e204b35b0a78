"""Goes through a script as a shell would and says what it comes to: commands, written files, endless waits. Pure.

All branches are taken. Functions are followed where they are called, with their arguments; files that the script
writes are followed where they are run; so are `bash -c`, `eval`, heredocs for a shell and `trap` (``programs``).
Scripts in other languages are not followed. Nothing is executed.
"""

from __future__ import annotations

import re
from dataclasses import replace

from batchyard.doctor.shell import expand, parameters
from batchyard.doctor.shell.disk import File
from batchyard.doctor.shell.memory import is_assignment
from batchyard.doctor.shell.parse import parse
from batchyard.doctor.shell.programs import PIPE, Programs
from batchyard.doctor.shell.trace import Around, Looped, Ran
from batchyard.doctor.shell.tree import (
    Command,
    Compound,
    Piece,
    Redirect,
    Script,
    Simple,
    Substitution,
    Variable,
    Word,
)

#: commands looked at in one statement, all calls followed: beyond any real one
MAX_STEPS = 20_000
MAX_STEPS_IN_ALL = 100_000
FEW_STEPS = 20
#: begins what `$!` stands for
JOB = "job:"

_COUNTS = re.compile(r"-(?:lt|le|gt|ge|eq|ne)$")


class Session(Programs):
    """Scripts that run one after the other, in the same shell."""

    def __init__(self, files: dict[str, File]) -> None:
        """``files``: what lies on the disk already, by path; what the scripts write is added to it."""
        super().__init__(files)
        self._steps = 0
        self._limit = MAX_STEPS
        #: pipes and jobs, counted
        self._pipes = 0
        self._jobs = 0

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
        self._execute((path,), Around())
        self._spring_traps()

    def _spring_traps(self) -> None:
        """What a trap does comes last, when the script ends."""
        traps, self.traps = self.traps, []
        for source, around in traps:
            self.text(source, around, "trap")

    def learn(self, script: Script) -> None:
        """Functions may be defined below, or inside an `if`: all are known from the start."""
        for item in script:
            for pipeline in item.pipelines:
                for command in pipeline:
                    if isinstance(command, Compound):
                        if command.kind == "function":
                            self.functions[command.name] = command
                        for body in command.bodies:
                            self.learn(body)

    # -- commands ---------------------------------------------------------------------------------------------

    def script(self, script: Script, around: Around) -> None:
        for item in script:
            inside = self._apart(around) if item.is_background else around
            for at, pipeline in enumerate(item.pipelines):
                self.memory.branches += bool(at)
                self._pipeline(pipeline, inside)
                self.memory.branches -= bool(at)
            if item.is_background:
                self._note_job(inside)

    def _apart(self, around: Around) -> Around:
        """In the background, as a job that `wait` may name."""
        self._jobs += 1
        return replace(around, is_background=True, job=self._jobs)

    def _note_job(self, around: Around) -> None:
        self.memory.variables["!"] = (f"{JOB}{around.job}",)

    def _pipeline(self, commands: tuple[Command, ...], around: Around) -> None:
        output: File | None = around.stdin
        for at, command in enumerate(commands):
            is_last = at == len(commands) - 1
            pipe = (self._pipe(), True) if not is_last else None
            inside = replace(around, stdin=output, stdout=around.stdout if is_last else pipe)
            output = self._command(command, inside)
            if pipe is not None:
                output = self.disk.files.pop(pipe[0], None)

    def _pipe(self) -> str:
        self._pipes += 1
        return f"{PIPE}{self._pipes}"

    def _command(self, command: Command, around: Around) -> File | None:
        """Performs it; what it prints, where that is known."""
        self._steps += 1
        if self._steps > self._limit:
            self.holes += 1
            return None
        if isinstance(command, Simple):
            return self._simple(command, around)
        if command.kind == "function":  # from here on it is this one, though another was learned
            self.functions[command.name] = command
        else:
            self._compound(command, self._redirected(command.redirects, around, command.line))
        return None

    def _compound(self, command: Compound, around: Around) -> None:
        for word in command.words:
            self._substitutions(word.pieces, around)
        if command.kind == "for" and command.name:
            self._go_through(command, around)
        if command.kind == "coproc":
            around = self._apart(around)
        start = len(self.trace.ran)
        middle = start
        may_not_happen = command.kind not in ("group", "subshell", "coproc")
        folder = self.disk.folder
        self.memory.branches += may_not_happen
        for at, body in enumerate(command.bodies):
            self.script(body, around)
            if at == 0:
                middle = len(self.trace.ran)
        self.memory.branches -= may_not_happen
        if command.kind == "subshell":
            self.disk.folder = folder
        if command.kind == "coproc":
            self._note_job(around)
        if command.kind in ("while", "until"):
            asks, does = self.trace.ran[start:middle], self.trace.ran[middle:]
            is_counted = around.is_bounded or any(map(_counts, (*asks, *does)))
            is_apart = around.goes_on or around.is_detached
            self.trace.loops.append(
                Looped(tuple(asks), tuple(does), is_counted, is_apart, command.line)
            )

    def _go_through(self, command: Compound, around: Around) -> None:
        values = [text for words in self.memory.readings(command.words, around) for text in words]
        found = [path for value in values for path in self.disk.matching(value) or (value,)]
        if found:
            self.memory.learn(command.name, tuple(found))

    # -- simple commands --------------------------------------------------------------------------------------

    def _simple(self, command: Simple, around: Around) -> File | None:
        for name, items in command.arrays:
            for item in items:
                self._substitutions(item.pieces, around)
            values = tuple(text for words in self.memory.readings(items, around) for text in words)
            self.memory.array(name.rstrip("+="), values, name.endswith("+="))
        for word in command.words:
            self._substitutions(word.pieces, around)
        around = self._redirected(command.redirects, around, command.line)
        output: File | None = None
        # A command that a function is given stands where the function is called.
        line = around.called_at if around.called_at and _is_given(command) else command.line
        for words in self.memory.readings(command.words, around):
            self._steps += 1
            if all(map(is_assignment, words)):
                self.memory.assign(words)
            else:
                output = self.program(words, line, around)
        return output

    def _substitutions(self, pieces: tuple[Piece, ...], around: Around) -> None:
        """Runs what stands in $(...), and sets what stands in ${name:=...}."""
        for piece in pieces:
            if isinstance(piece, Substitution):
                self._substitute(piece, around)
            elif isinstance(piece, Variable) and piece.operand:
                if piece.operator in parameters.DEFAULTS and self.memory.variables.get(piece.name):
                    continue
                self._substitutions(piece.operand, around)
                if piece.operator in parameters.ASSIGNS:
                    value = expand.operand(piece, self.memory.scope(around))
                    self.memory.assign((f"{piece.name}={value}",))

    def _substitute(self, piece: Substitution, around: Around) -> None:
        pipe, holes, folder = self._pipe(), self.holes, self.disk.folder
        # Who prints into it in the background keeps it open all the same.
        inside = replace(
            around, stdin=None, stdout=(pipe, True), holds_pipe=not around.is_background
        )
        self.script(piece.script, inside)
        self.disk.folder = folder
        printed = self.disk.files.pop(pipe, None)
        if piece.is_file:
            path = f"/dev/fd/{pipe[len(PIPE) :]}"
            self.disk.files[path] = printed or File("", 0)
            self.memory.printed(piece, path)
        else:
            is_known = printed is not None and self.holes == holes
            self.memory.printed(
                piece, printed.content.rstrip("\n") if printed is not None and is_known else None
            )

    def _redirected(self, redirects: tuple[Redirect, ...], around: Around, line: int) -> Around:
        for redirect in redirects:
            if redirect.heredoc is not None:
                self._substitutions(redirect.heredoc.pieces, around)
                body = redirect.heredoc.body
                text = (
                    body
                    if redirect.heredoc.is_quoted
                    else self.memory.fill(_unescaped(body), around)
                )
                around = replace(around, stdin=File(text, redirect.heredoc.line))
            elif redirect.target is not None:
                self._substitutions(redirect.target.pieces, around)
                around = self._to_or_from(redirect.operator, redirect.target, around, line)
        return around

    def _to_or_from(self, operator: str, target: Word, around: Around, line: int) -> Around:
        text = self.memory.text_of(target, around)
        if operator == "<<<":
            return replace(around, stdin=File(text, line))
        if operator == "<":
            return replace(around, stdin=self.disk.find(text))
        if operator in (">", ">>", ">|"):
            if operator != ">>":
                self.write(text, File("", line), False, None)
            return replace(around, stdout=(text, operator == ">>"), holds_pipe=False)
        return around


def _is_given(command: Simple) -> bool:
    """Whether a function's arguments say what to do: "$@", or sh -c "$*", or $1 as the program."""
    first = command.words[0].pieces[:1] if command.words else ()
    pieces = [piece for word in command.words for piece in word.pieces]
    is_all = any(isinstance(piece, Variable) and piece.name in ("@", "*") for piece in pieces)
    return is_all or any(isinstance(piece, Variable) and piece.name.isdigit() for piece in first)


def _counts(ran: Ran) -> bool:
    """It compares numbers, or gives up: the loop ends by itself."""
    return ran.program in ("exit", "return", "((", "let") or any(
        _COUNTS.match(word) for word in ran.words
    )


def _unescaped(body: str) -> str:
    return re.sub(r"\\([$`\\])", r"\1", body)
