"""Find out whether a `while` or `until` loop ends by itself: by a count, or by the clock. Pure.

A loop is bounded if a number that it changes, or the time, is compared where the result ends the
loop: in its condition, or before a `break`, `exit` or `return`. A comparison alone bounds nothing
(`[ "$(curl ...)" -ne 200 ]`), and neither does a count that nobody looks at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from batchyard.doctor.shell.syntax_tree import (
    Command,
    Compound,
    Item,
    Script,
    Simple,
    Text,
    Word,
)

#: functions in functions that are looked into
_MAX_CALLS = 4
#: characters of a command that are looked at
_MAX_LENGTH = 2_000

_TESTS = frozenset({"[", "[[", "test", "((", "let", "expr"})
#: programs that neither ask nor wait for anything outside the script
_NEUTRAL = _TESTS | frozenset("true : echo printf logger sleep break exit continue return".split())
#: n=..., local n=..., let n=...
_ASSIGNMENT = re.compile(
    r"(?:(?:local|declare|typeset|export|let)[ \t]+(?:-\w+[ \t]+)*[\"']?)?"
    r"([A-Za-z_]\w*)[ \t]*(\+?=)(?!=)(.*)",
    re.DOTALL,
)
_ARITHMETIC_ASSIGNMENT = re.compile(r"\b([A-Za-z_]\w*)[ \t]*=(?!=)([^,;=]*)")
#: n++, n--, n += 1, ++n, --n
_STEP = re.compile(r"\b([A-Za-z_]\w*)[ \t]*(?:\+\+|--|[-+*/]=)|(?:\+\+|--)([A-Za-z_]\w*)")
_CLOCK = re.compile(r"\bdate\b|\b(?:EPOCH)?SECONDS\b|/proc/uptime")
_NUMERIC = re.compile(r"[ \t]-(?:lt|le|gt|ge|eq|ne)\b")
_VARIABLE = re.compile(r"\$\{?#?([A-Za-z_]\w*|[#?])")
_ARITHMETIC = re.compile(r"\(\((.*?)\)\)", re.DOTALL)
_OPERANDS = re.compile(r"([A-Za-z_]\w*)[ \t]+-(?:lt|le|gt|ge|eq|ne)\b")
_NAME = re.compile(r"[A-Za-z_]\w*")
_OUTPUT = re.compile(r"\$\((?!\()|`")
#: files that appear only when the boot goes on
_BOOT_FILES = re.compile(r"boot-finished|/var/(?:log|lib)/ecs/|docker\.(?:sock|pid)")

Functions = Mapping[str, Compound]
Guard = tuple[Simple, ...]


@dataclass(frozen=True, slots=True)
class _Exit:
    """A command that ends the loop, and the commands whose results decide whether it is run."""

    guards: tuple[Guard, ...]


def is_bounded(loop: Compound, functions: Functions) -> bool:
    """Return whether a count, the clock or a `break` without a question ends the loop."""
    condition = _simple_commands(loop.bodies[:1], functions)
    names = _Names(_simple_commands(loop.bodies, functions))
    if any(names.counts(command) for command in condition):
        return True
    exits = _find_exits(loop.bodies, functions)
    return any(names.may_pass(exit_command.guards) for exit_command in exits)


def awaits_failure(loop: Compound) -> bool:
    """Return whether the loop runs as long as one command succeeds: `while docker info`."""
    condition = loop.bodies[0] if loop.bodies else ()
    if len(condition) != 1 or len(condition[0].pipelines) != 1:
        return False
    command = condition[0].pipelines[0][0]
    if isinstance(command, Compound) or _program_of(command) in _NEUTRAL:
        return False
    return command.is_negated == (loop.kind == "until")


class _Names:
    """The variables that a loop changes: counts, which change by themselves, and answers."""

    def __init__(self, commands: Iterable[Simple]) -> None:
        self._counts: set[str] = set()
        self._answers: set[str] = {"?"}
        for command in commands:
            self._read(command)
        self._answers -= self._counts

    def _read(self, command: Simple) -> None:
        source = _source_of(command)
        if _program_of(command) == "shift":
            self._counts.add("#")
        for match in _STEP.finditer(source):
            self._counts.add(match[1] or match[2])
        assignments = [match.groups() for match in _ARITHMETIC_ASSIGNMENT.finditer(source)]
        if not source.startswith(("((", "let")):
            whole = _ASSIGNMENT.match(source)
            assignments = [(whole[1], whole[3])] if whole else []
        for name, value in assignments:
            is_count = re.search(rf"\b{name}\b", value) or _CLOCK.search(value)
            (self._counts if is_count else self._answers).add(name)

    def counts(self, command: Simple) -> bool:
        """Return whether the command compares a count or the time."""
        if _program_of(command) not in _TESTS:
            return False
        source = _source_of(command)
        if _CLOCK.search(source):
            return True
        return not self._counts.isdisjoint(_names_compared(source))

    def may_pass(self, guards: tuple[Guard, ...]) -> bool:
        """Return whether the guards let an exit be reached, whatever docker or the agent does."""
        commands = [command for guard in guards for command in guard]
        if any(map(self.counts, commands)):
            return True
        return not any(self._asks(command) or _is_numeric(command) for command in commands)

    def _asks(self, command: Simple) -> bool:
        """Return whether the result of the command comes from outside the script."""
        source = _source_of(command)
        program = _program_of(command)
        if program not in _NEUTRAL and not _ASSIGNMENT.match(source):
            return True
        if _OUTPUT.search(source) or _BOOT_FILES.search(source):
            return True
        return not self._answers.isdisjoint(_VARIABLE.findall(source))


def _is_numeric(command: Simple) -> bool:
    source = _source_of(command)
    return _program_of(command) in ("((", "let") or bool(_NUMERIC.search(source))


def _names_compared(source: str) -> set[str]:
    texts = [match[1] for match in _ARITHMETIC.finditer(source)]
    if source.startswith("let"):
        texts.append(source[len("let") :])
    arithmetic = {name for text in texts for name in _NAME.findall(text)}
    return arithmetic | {*_VARIABLE.findall(source), *_OPERANDS.findall(source)}


def _source_of(command: Simple) -> str:
    return command.source[:_MAX_LENGTH]


def _program_of(command: Simple) -> str:
    return (command.words[0].plain or "") if command.words else ""


# -- walks through the tree ------------------------------------------------------------------------


def _simple_commands(scripts: Iterable[Script], functions: Functions) -> tuple[Simple, ...]:
    """Return the simple commands of scripts, and of the functions that they call."""
    return tuple(_walk(scripts, functions, set(), 0))


def _walk(
    scripts: Iterable[Script], functions: Functions, seen: set[str], depth: int
) -> Iterator[Simple]:
    for command in _commands(scripts):
        if isinstance(command, Compound):
            if command.kind != "function":
                yield from _walk(command.bodies, functions, seen, depth)
            continue
        yield command
        name = _program_of(command)
        if name in functions and name not in seen and depth < _MAX_CALLS:
            seen.add(name)
            yield from _walk(functions[name].bodies, functions, seen, depth + 1)


def _commands(scripts: Iterable[Script]) -> Iterator[Command]:
    for script in scripts:
        for item in script:
            for pipeline in item.pipelines:
                yield from pipeline


def _find_exits(scripts: Iterable[Script], functions: Functions) -> Iterator[_Exit]:
    walk = _ExitWalk(functions)
    for script in scripts:
        yield from walk.in_script(script, (), {"break", "exit", "return"}, 0)


class _ExitWalk:
    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._seen: set[str] = set()

    def in_script(
        self, script: Script, guards: tuple[Guard, ...], words: set[str], depth: int
    ) -> Iterator[_Exit]:
        for item in script:
            inner = guards
            for pipeline in item.pipelines:
                for command in pipeline:
                    yield from self._in_command(command, inner, words, depth)
                inner = (*inner, self._commands_of(Item((pipeline,))))
            commands = self._commands_of(item)
            if any(_program_of(command) == "continue" for command in commands):
                # What follows is reached only if the round is not continued here.
                guards = (*guards, commands)

    def _commands_of(self, item: Item) -> Guard:
        return _simple_commands(((item,),), self._functions)

    def _in_command(
        self, command: Command, guards: tuple[Guard, ...], words: set[str], depth: int
    ) -> Iterator[_Exit]:
        if isinstance(command, Compound):
            yield from self._in_compound(command, guards, words, depth)
            return
        name = _program_of(command)
        if name in words or (name == "break" and len(command.words) > 1):
            yield _Exit(guards)
        elif name in self._functions and name not in self._seen and depth < _MAX_CALLS:
            self._seen.add(name)
            for body in self._functions[name].bodies:
                # `return` and `break` in a function do not end the loop that calls it.
                yield from self.in_script(body, guards, {"exit"}, depth + 1)

    def _in_compound(
        self, command: Compound, guards: tuple[Guard, ...], words: set[str], depth: int
    ) -> Iterator[_Exit]:
        if command.kind in ("function", "subshell", "coproc"):
            return
        if command.kind in ("while", "until", "for", "select"):
            words = words - {"break"}
        for at, body in enumerate(command.bodies):
            inner = (*guards, *self._guards_of_body(command, at))
            yield from self.in_script(body, inner, words, depth)

    def _guards_of_body(self, command: Compound, at: int) -> tuple[Guard, ...]:
        """Return what is asked before this body is run: the conditions before it."""
        if command.kind == "case":
            test = Word((Text("["),), command.line)
            return ((Simple((test,), (), command.line, source=f"[ {command.subject} ]"),),)
        if command.kind not in ("if", "while", "until"):
            return ()
        # The bodies of `if` are condition, commands, condition, commands ...
        conditions = command.bodies[: at if command.kind == "if" else min(at, 1) : 2]
        return tuple(_simple_commands((condition,), self._functions) for condition in conditions)
