"""Follow shell scripts: record the commands, written files and loops, and execute nothing. Pure.

All branches are taken. Functions are followed where they are called, with their arguments; files
that the script writes are followed where they are run; so are `bash -c`, `eval`, heredocs for a
shell and `trap` (``programs``). Scripts in other languages are not followed.
"""

from __future__ import annotations

import re
from dataclasses import replace

from batchyard.doctor.shell import bounds, expand, parameters
from batchyard.doctor.shell.files import File
from batchyard.doctor.shell.parse import parse
from batchyard.doctor.shell.programs import PIPE, ProgramFollower
from batchyard.doctor.shell.state import is_assignment
from batchyard.doctor.shell.syntax_tree import (
    Command,
    Compound,
    Heredoc,
    Piece,
    Redirect,
    Script,
    Simple,
    Substitution,
    Variable,
    Word,
)
from batchyard.doctor.shell.trace import Context, Loop

#: commands that are followed for one statement, calls included: beyond any real script
MAX_STEPS = 20_000
MAX_STEPS_IN_ALL = 100_000
FEW_STEPS = 20
#: prefix of the value of `$!`
JOB = "job:"


class Session(ProgramFollower):
    """Scripts that run one after the other, in the same shell."""

    def __init__(self, files: dict[str, File]) -> None:
        """``files``: the existing files by path; files that the scripts write are added to it."""
        super().__init__(files)
        self._steps = 0
        self._max_steps = MAX_STEPS
        self._pipe_count = 0
        self._job_count = 0
        #: id of a loop -> the loop, which keeps its id in use, and whether it is bounded
        self._bounded_loops: dict[int, tuple[Compound, bool]] = {}

    def run(self, text: str, first_line: int = 1, via: tuple[str, ...] = ()) -> None:
        """Follow a script. ``via`` names the program that runs it, if that is not cloud-init."""
        script = parse(text, first_line)
        self.define_functions(script)
        for item in script:
            # A statement that leads to endless others must not hide the statements below it.
            is_within = self._steps < MAX_STEPS_IN_ALL
            self._max_steps = self._steps + (MAX_STEPS if is_within else FEW_STEPS)
            self.follow_script((item,), Context(via=via))
        self._max_steps += FEW_STEPS
        self._run_traps()

    def run_path(self, path: str) -> None:
        """Follow the file with this path."""
        self.run_file((path,), Context())
        self._run_traps()

    def _run_traps(self) -> None:
        """Follow the traps, and those that a shell sets which a trap has started."""
        while self.traps:  # a trap that sets itself again ends at the depth that run_text allows
            traps, self.traps = self.traps, []
            for source, context in traps:
                self.run_text(source, context, "trap")

    def define_functions(self, script: Script) -> None:
        for item in script:
            for pipeline in item.pipelines:
                for command in pipeline:
                    if isinstance(command, Compound):
                        self._define_functions_of(command)

    def _define_functions_of(self, command: Compound) -> None:
        if command.kind == "function":
            self.functions[command.name] = command
        for body in command.bodies:
            self.define_functions(body)

    # -- commands ---------------------------------------------------------------------------------

    def follow_script(self, script: Script, context: Context) -> None:
        for item in script:
            inner = self._as_background_job(context) if item.is_background else context
            for at, pipeline in enumerate(item.pipelines):
                self.state.branch_depth += bool(at)
                self._follow_pipeline(pipeline, inner)
                self.state.branch_depth -= bool(at)
            if item.is_background:
                self._set_last_job(inner)

    def _as_background_job(self, context: Context) -> Context:
        """Return the context of a new background job, which `wait` can name."""
        self._job_count += 1
        return replace(context, is_background=True, job=self._job_count)

    def _set_last_job(self, context: Context) -> None:
        self.state.variables["!"] = (f"{JOB}{context.job}",)

    def _follow_pipeline(self, commands: tuple[Command, ...], context: Context) -> None:
        output: File | None = context.stdin
        for at, command in enumerate(commands):
            is_last = at == len(commands) - 1
            pipe = (self._new_pipe(), True) if not is_last else None
            inner = replace(
                context,
                stdin=output,
                stdout=context.stdout if is_last else pipe,
                has_unknown_stdin=at > 0 and output is None,
            )
            output = self._follow_command(command, inner)
            if pipe is not None:
                output = self.files.files.pop(pipe[0], None)

    def _new_pipe(self) -> str:
        self._pipe_count += 1
        return f"{PIPE}{self._pipe_count}"

    def _follow_command(self, command: Command, context: Context) -> File | None:
        """Follow a command; return its output, None if that is unknown."""
        self._steps += 1
        if self._steps > self._max_steps:
            self.unknown_outputs += 1
            return None
        if isinstance(command, Simple):
            return self._follow_simple(command, context)
        if command.kind == "function":  # it replaces another function of this name
            self.functions[command.name] = command
        else:
            context = self._redirect(command.redirects, context, command.line)
            self._follow_compound(command, context)
        return None

    def _follow_compound(self, command: Compound, context: Context) -> None:
        for word in command.words:
            self._run_substitutions(word.pieces, context)
        if command.kind == "for" and command.name:
            self._set_loop_variable(command, context)
        if command.kind == "coproc":
            context = self._as_background_job(context)
        folder = self.files.folder
        self._follow_bodies(command, context)
        if command.kind == "subshell":
            self.files.folder = folder
        if command.kind == "coproc":
            self._set_last_job(context)

    def _follow_bodies(self, command: Compound, context: Context) -> None:
        start = middle = len(self.trace.commands)
        may_not_run = command.kind not in ("group", "subshell", "coproc")
        self.state.branch_depth += may_not_run
        for at, body in enumerate(command.bodies):
            self.follow_script(body, context)
            if at == 0:
                middle = len(self.trace.commands)
        self.state.branch_depth -= may_not_run
        if command.kind in ("while", "until"):
            condition, body_commands = (
                tuple(self.trace.commands[start:middle]),
                tuple(self.trace.commands[middle:]),
            )
            is_bounded = context.is_bounded or self._is_bounded(command)
            is_background = context.is_not_awaited or context.is_detached
            loop = Loop(
                condition,
                body_commands,
                is_bounded,
                is_background,
                command.line,
                bounds.awaits_failure(command),
            )
            self.trace.loops.append(loop)

    def _is_bounded(self, loop: Compound) -> bool:
        """Return whether the loop ends by itself. Each loop is read once."""
        cached_answer = self._bounded_loops.get(id(loop))
        if cached_answer is None:
            cached_answer = self._bounded_loops[id(loop)] = (
                loop,
                bounds.is_bounded(loop, self.functions),
            )
        return cached_answer[1]

    def _set_loop_variable(self, command: Compound, context: Context) -> None:
        expanded = self.state.expand_words(command.words, context)
        texts = [text for words in expanded for text in words]
        values = [path for text in texts for path in self.files.glob(text) or (text,)]
        if values:
            self.state.set_values(command.name, tuple(values))

    # -- simple commands --------------------------------------------------------------------------

    def _follow_simple(self, command: Simple, context: Context) -> File | None:
        for name, elements in command.arrays:
            self._set_array(name, elements, context)
        for word in command.words:
            self._run_substitutions(word.pieces, context)
        context = self._redirect(command.redirects, context, command.line)
        output: File | None = None
        # A command that is an argument of a function is written where the function is called.
        is_from_caller = context.called_at and _is_from_arguments(command)
        line = context.called_at if is_from_caller else command.line
        for words in self.state.expand_words(command.words, context):
            self._steps += 1
            if all(map(is_assignment, words)):
                self.state.assign(words)
            else:
                output = self.run_program(words, line, context)
        return output

    def _set_array(self, name: str, elements: tuple[Word, ...], context: Context) -> None:
        for element in elements:
            self._run_substitutions(element.pieces, context)
        expanded = self.state.expand_words(elements, context)
        values = tuple(text for words in expanded for text in words)
        self.state.set_array(name.rstrip("+="), values, name.endswith("+="))

    def _run_substitutions(self, pieces: tuple[Piece, ...], context: Context) -> None:
        """Follow each $(...), and set the variable of each ${name:=...}."""
        for piece in pieces:
            if isinstance(piece, Substitution):
                self._run_substitution(piece, context)
            elif isinstance(piece, Variable) and piece.operand:
                self._run_operand(piece, context)

    def _run_operand(self, variable: Variable, context: Context) -> None:
        is_set = bool(self.state.variables.get(variable.name))
        if variable.operator in parameters.DEFAULTS and is_set:
            return
        self._run_substitutions(variable.operand, context)
        if variable.operator in parameters.ASSIGNS:
            value = expand.operand(variable, self.state.scope(context))
            self.state.assign((f"{variable.name}={value}",))

    def _run_substitution(self, piece: Substitution, context: Context) -> None:
        pipe, unknown_outputs, folder = self._new_pipe(), self.unknown_outputs, self.files.folder
        # A background command that prints into the pipe keeps it open.
        holds_pipe = not context.is_background
        inner = replace(context, stdin=None, stdout=(pipe, True), holds_pipe=holds_pipe)
        self.follow_script(piece.script, inner)
        self.files.folder = folder
        output = self.files.files.pop(pipe, None)
        if piece.is_file:
            path = f"/dev/fd/{pipe[len(PIPE) :]}"
            self.files.files[path] = output or File("", 0)
            if output is None:
                self.unknown_files.add(path)
            self.state.set_output(piece, path)
        elif output is not None and self.unknown_outputs == unknown_outputs:
            self.state.set_output(piece, output.content.rstrip("\n"))
        else:
            self.state.set_output(piece, None)

    # -- redirects --------------------------------------------------------------------------------

    def _redirect(self, redirects: tuple[Redirect, ...], context: Context, line: int) -> Context:
        """Return the context with standard input and output as the redirects set them."""
        for redirect in redirects:
            if redirect.heredoc is not None:
                context = self._redirect_heredoc(redirect.heredoc, context)
            elif redirect.target is not None:
                self._run_substitutions(redirect.target.pieces, context)
                context = self._redirect_file(redirect.operator, redirect.target, context, line)
        return context

    def _redirect_heredoc(self, heredoc: Heredoc, context: Context) -> Context:
        self._run_substitutions(heredoc.pieces, context)
        text = heredoc.body
        if not heredoc.is_quoted:
            text = self.state.fill_heredoc(re.sub(r"\\([$`\\])", r"\1", text), context)
        return replace(context, stdin=File(text, heredoc.line))

    def _redirect_file(self, operator: str, target: Word, context: Context, line: int) -> Context:
        text = self.state.expand_text(target, context)
        if operator == "<<<":
            return replace(context, stdin=File(text, line))
        if operator == "<":
            return replace(context, stdin=self.files.find(text))
        if operator not in (">", ">>", ">|"):
            return context
        if operator != ">>":
            self.write(text, File("", line), False, None)
        return replace(context, stdout=(text, operator == ">>"), holds_pipe=False)


def _is_from_arguments(command: Simple) -> bool:
    """Return whether a function's arguments are the command: "$@", sh -c "$*", or $1 as program."""
    first = command.words[0].pieces[:1] if command.words else ()
    variables = [
        piece.name for word in command.words for piece in word.pieces if isinstance(piece, Variable)
    ]
    has_all = "@" in variables or "*" in variables
    return has_all or any(isinstance(piece, Variable) and piece.name.isdigit() for piece in first)
