"""Shell text -> tree. Reads any text: what cannot be understood is skipped, and nothing is refused. Pure.

One pass over the characters, so that a substitution inside a string inside a substitution is read by the same rules.
Nothing here looks ahead further than a word; nesting beyond ``MAX_DEPTH`` is taken for text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from batchyard.doctor.shell.reader import MAX_DEPTH, META, Reader, raw
from batchyard.doctor.shell.tree import (
    Command,
    Compound,
    Item,
    Redirect,
    Script,
    Simple,
    Substitution,
    Text,
    Variable,
    Word,
)

#: user data has at most 16 KiB; what is longer than this is no script
MAX_LENGTH = 100_000

T = TypeVar("T")

_FUNCTION = re.compile(r"([\w.:+@-]+)[ \t]*\([ \t]*\)")
_COPROC_NAME = re.compile(r"[A-Za-z_]\w*[ \t]+(?=[{(])")
#: for (( ; ; )), which nothing ends
_FOREVER = re.compile(r"\(\([^;()]*;\s*;[^;()]*\)\)")
_RESERVED = re.compile(r"[a-z]+|[{}!]")
_CLOSERS = frozenset({"then", "do", "done", "fi", "else", "elif", "esac", "}", ";;"})


def parse(text: str, first_line: int = 1) -> Script:
    return _Parser(text[:MAX_LENGTH].replace("\r\n", "\n"), first_line).all()


class _Parser(Reader):
    def all(self) -> Script:
        found: list[Item] = []
        while self.at < self.end:
            found += self.script()
            # A closing word or parenthesis that nothing opened.
            if self.at < self.end:
                self.step_over()
        return tuple(found)

    def inner(self, source: str, line: int) -> Script:
        return tuple(self.sibling(source, line).script())

    def sibling(self, source: str, line: int) -> _Parser:
        parser = _Parser(source, line)
        parser.depth = self.depth + 1
        return parser

    def step_over(self) -> None:
        """At a closer that nothing opened: past it, whatever it is."""
        if self.peek() and self.peek() not in META:
            self.word()
        else:
            self.take_newline() if self.peek() == "\n" else self.skip(1)

    # -- scripts ----------------------------------------------------------------------------------------------

    def script(self) -> list[Item]:
        """Items up to a closer of any construct, which is left where it stands."""
        items: list[Item] = []
        while True:
            self.separators()
            if (
                self.at >= self.end
                or self.peek() == ")"
                or self.peek(2) == ";;"
                or self._at_closer()
            ):
                return items
            before = self.at
            item = self._item()
            if item.pipelines:
                items.append(item)
            if self.at == before:
                self.skip(1)

    def separators(self) -> None:
        while True:
            self.blanks()
            if self.peek() == "\n":
                self.take_newline()
            elif self.peek() in (";", "&") and self.peek() and self.peek(2) not in (";;", "&>"):
                self.at += 1
            else:
                return

    def _at_closer(self) -> bool:
        return self._reserved() in _CLOSERS

    def _item(self) -> Item:
        pipelines: list[tuple[Command, ...]] = []
        while True:
            pipeline = self._pipeline()
            if pipeline:
                pipelines.append(pipeline)
            self.blanks()
            if self.peek(2) in ("&&", "||"):
                self.skip(2)
                self._newlines_and_blanks()
                if not pipeline and self.at >= self.end:
                    break
                continue
            break
        if self.peek() == "&" and self.peek(2) not in ("&&", "&>"):
            self.skip(1)
            return Item(tuple(pipelines), True)
        return Item(tuple(pipelines))

    def _pipeline(self) -> tuple[Command, ...]:
        commands: list[Command] = []
        while True:
            self.blanks()
            command = self._command()
            if command is not None:
                commands.append(command)
            self.blanks()
            if self.peek() == "|" and self.peek(2) != "||":
                self.skip(2 if self.peek(2) == "|&" else 1)
                self._newlines_and_blanks()
                continue
            return tuple(commands)

    def _newlines_and_blanks(self) -> None:
        self.blanks()
        while self.peek() == "\n":
            self.take_newline()
            self.blanks()

    # -- commands ---------------------------------------------------------------------------------------------

    def _command(self) -> Command | None:
        return self._deeper(self._compound) or self._simple()

    def _deeper(self, read: Callable[[], T]) -> T | None:
        """Reads one level down; nothing where that would be too deep."""
        if self.depth >= MAX_DEPTH:
            return None
        self.depth += 1
        try:
            return read()
        finally:
            self.depth -= 1

    def _compound(self) -> Command | None:
        line = self.line()
        if self.peek(2) == "((":
            return self._arithmetic(line)
        if self.peek() == "(":
            self.skip(1)
            body = self.body()
            self.close(")")
            return self._with_redirects("subshell", (body,), line)
        function = _FUNCTION.match(self.text, self.at)
        if function:
            self.at = function.end()
            return self._function(function[1], line)
        word = self._reserved()
        if word in ("if", "while", "until", "for", "select", "case", "{", "function"):
            self.at += len(word)
            return self._after(word, line)
        if word in ("!", "time"):
            self.at += len(word)
            self.blanks()
            return self._command()
        return self._coproc(line) if word == "coproc" else None

    def _coproc(self, line: int) -> Compound:
        self.at += len("coproc")
        self.blanks()
        if named := _COPROC_NAME.match(self.text, self.at):
            self.at = named.end()
        command = self._command()
        return Compound("coproc", ((Item(((command,),)),),) if command else (), line)

    def _after(self, word: str, line: int) -> Command:
        if word == "if":
            return self._through(("then", "elif", "else"), "fi", "if", line)
        if word in ("while", "until"):
            return self._through(("do",), "done", word, line)
        if word == "{":
            return self._through((), "}", "group", line)
        if word == "case":
            return self._case(line)
        if word == "function":
            self.blanks()
            name = self.word()
            self.blanks()
            if self.peek() == "(":
                self.skip(1)
                self.blanks()
                self.close(")")
            return self._function(raw(name), line)
        return self._for(line)

    def _through(self, inner: tuple[str, ...], last: str, kind: str, line: int) -> Compound:
        """Script, word, script, word ... up to the last word; or to the end of the text, where it is missing."""
        bodies = [self.body()]
        while self._reserved() in inner and self._reserved():
            self.at += len(self._reserved())
            bodies.append(self.body())
        if self._reserved() == last:
            self.at += len(last)
        return self._with_redirects(kind, tuple(bodies), line)

    def _for(self, line: int) -> Compound:
        words: list[Word] = []
        self.blanks()
        is_forever = False
        if self.peek(2) == "((":
            is_forever = bool(_FOREVER.match(self.text, self.at))
            words += self._arithmetic(line).words
            name = ""
        else:
            words.append(Word((Variable("@", True),), line))
            name = raw(self.word())
            self._newlines_and_blanks()
            if self._reserved() == "in":
                self.at += 2
                self.blanks()
                words.clear()
                while self.peek() and self.peek() not in ";\n&|()":
                    before = self.at
                    words.append(self.word())
                    self.blanks()
                    if self.at == before:
                        self.skip(1)
        self.separators()
        compound = self._body_of_for(line)
        if is_forever:
            return Compound("while", ((), *compound.bodies), line, redirects=compound.redirects)
        return Compound("for", compound.bodies, line, name, tuple(words), compound.redirects)

    def _body_of_for(self, line: int) -> Compound:
        if self._reserved() == "do":
            self.at += 2
            return self._through((), "done", "for", line)
        if self._reserved() == "{":
            self.at += 1
            return self._through((), "}", "for", line)
        return Compound("for", (), line)

    def _case(self, line: int) -> Compound:
        self.blanks()
        subject = self.word()
        self._newlines_and_blanks()
        if self._reserved() == "in":
            self.at += 2
        bodies: list[Script] = []
        while self.at < self.end:
            self.separators()
            if self._reserved() == "esac":
                self.at += 4
                break
            before = self.at
            self._pattern()
            bodies.append(self.body())
            if self.peek(2) == ";;":
                self.skip(3 if self.peek(3) == ";;&" else 2)
            elif self._reserved() in _CLOSERS and self._reserved() != "esac":
                break
            if self.at == before:
                self.skip(1)
        return replace(self._with_redirects("case", tuple(bodies), line), words=(subject,))

    def _pattern(self) -> None:
        """Past `a|b)`."""
        if self.peek() == "(":
            self.skip(1)
        while self.at < self.end and self.peek() not in ")\n;":
            self.blanks()
            if self.peek() == "|" or self.peek() in "<>&(":
                self.skip(1)
            elif self.peek() not in ")\n;":
                self.word()
            self.blanks()
        self.close(")")

    def _function(self, name: str, line: int) -> Compound:
        self._newlines_and_blanks()
        body = self._deeper(self._compound)
        bodies = ((Item(((body,),)),),) if body is not None else ()
        return Compound("function", bodies, line, name)

    def _arithmetic(self, line: int) -> Simple:
        """Past ((...)). It starts nothing but what stands in it as $(...), and says that something is counted."""
        stop = self.arithmetic_end(self.at + 2) if self.at < self.last_arithmetic else 0
        inside: tuple[Word, ...] = ()
        if not stop:
            self.skip(2)
        else:
            if script := self.scripts_in(self.at + 2, stop - 2):
                inside = (Word((Substitution(script, True, "0"),), line),)
            self.at = stop
        return Simple((Word((Text("(("),), line), *inside), (), line)

    def _with_redirects(self, kind: str, bodies: tuple[Script, ...], line: int) -> Compound:
        redirects: list[Redirect] = []
        self.blanks()
        while self.redirect_here():
            redirects.append(self.redirect())
            self.blanks()
        return Compound(kind, bodies, line, redirects=tuple(redirects))

    def body(self) -> Script:
        return tuple(self._deeper(self.script) or ())

    def _reserved(self) -> str:
        """The reserved word here, without taking it; empty where there is none."""
        match = _RESERVED.match(self.text, self.at)
        if not match:
            return ""
        after = self.text[match.end() : match.end() + 1]
        return match[0] if not after or after in META else ""

    def _simple(self) -> Simple | None:
        line = self.line()
        words: list[Word] = []
        redirects: list[Redirect] = []
        arrays: list[tuple[str, tuple[Word, ...]]] = []
        while True:
            self.blanks()
            if self.redirect_here():
                redirects.append(self.redirect())
            elif self.at >= self.end or self.peek() in "\n;&|)":
                break
            elif self.peek() == "(":
                arrays.append((raw(words.pop()) if words else "", self._array()))
            else:
                before = self.at
                words.append(self.word())
                if self.at == before:
                    self.skip(1)
                if len(words) == 1 and words[0].plain == "[[":
                    words += self._test()
        if not words and not redirects and not arrays:
            return None
        return Simple(tuple(words), tuple(redirects), line, tuple(arrays))

    def _test(self) -> list[Word]:
        """Up to ]], where && and < are no more than words; on the same line, or it is taken for other commands."""
        words: list[Word] = []
        stop = self.text.find("\n", self.at)
        if self.text.find("]]", self.at, self.end if stop < 0 else stop) < 0:
            return words
        while self.at < self.end and self.peek() != "\n":
            self.blanks()
            if self.peek() and self.peek() in META and self.peek() != "\n":
                words.append(Word((Text(self.peek()),), self.line()))
                self.skip(1)
            elif self.peek() and self.peek() != "\n":
                words.append(self.word())
                if words[-1].plain == "]]":
                    break
        return words

    def _array(self) -> tuple[Word, ...]:
        """What stands in name=( ... )."""
        self.skip(1)
        words: list[Word] = []
        while self.at < self.end and self.peek() != ")":
            self.blanks()
            if self.peek() == "\n":
                self.take_newline()
            elif self.peek() and self.peek() not in META:
                words.append(self.word())
            elif self.peek() != ")":
                self.skip(1)
        self.close(")")
        return tuple(words)
