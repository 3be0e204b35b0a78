"""Parse shell scripts into a syntax tree. Parts that are not understood are skipped. Pure.

The parser passes once over the characters, so that a substitution in a string in a substitution
is read by the same rules. Nesting beyond ``MAX_DEPTH`` is kept as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from batchyard.doctor.shell.reader import MAX_DEPTH, META, Reader, without_expansions
from batchyard.doctor.shell.syntax_tree import (
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

#: characters of a script; user data has at most 16 KiB
MAX_LENGTH = 100_000

T = TypeVar("T")

_FUNCTION = re.compile(r"([\w.:+@-]+)[ \t]*\([ \t]*\)")
_COPROC_NAME = re.compile(r"[A-Za-z_]\w*[ \t]+(?=[{(])")
#: for (( ; ; )), a loop without an end
_FOREVER = re.compile(r"\(\([^;()]*;\s*;[^;()]*\)\)")
_RESERVED = re.compile(r"[a-z]+|[{}!]")
_CLOSERS = frozenset({"then", "do", "done", "fi", "else", "elif", "esac", "}", ";;"})


def parse(text: str, first_line: int = 1) -> Script:
    return _Parser(text[:MAX_LENGTH].replace("\r\n", "\n"), first_line).parse_all()


class _Parser(Reader):
    def parse_all(self) -> Script:
        items: list[Item] = []
        while self.at < self.end:
            items += self.script()
            if self.at < self.end:
                self._skip_stray_closer()
        return tuple(items)

    def inner(self, source: str, line: int) -> Script:
        return tuple(self.sibling(source, line).script())

    def sibling(self, source: str, line: int) -> _Parser:
        parser = _Parser(source, line)
        parser.depth = self.depth + 1
        return parser

    def _skip_stray_closer(self) -> None:
        """Skip a closing word or parenthesis that nothing opened."""
        if self.peek() and self.peek() not in META:
            self.word()
        else:
            self.take_newline() if self.peek() == "\n" else self.skip(1)

    # -- scripts ----------------------------------------------------------------------------------

    def script(self) -> list[Item]:
        """Read items up to the closer of any construct, which is not read."""
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
            start = self.at
            item = self._item()
            if item.pipelines:
                items.append(item)
            if self.at == start:
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
        return self._reserved_word() in _CLOSERS

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

    # -- commands ---------------------------------------------------------------------------------

    def _command(self) -> Command | None:
        return self._deeper(self._compound) or self._simple()

    def _deeper(self, read: Callable[[], T]) -> T | None:
        """Read one level deeper; return None if that is too deep."""
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
        word = self._reserved_word()
        if word in ("if", "while", "until", "for", "select", "case", "{", "function"):
            self.at += len(word)
            return self._after(word, line)
        if word in ("!", "time"):
            self.at += len(word)
            self.blanks()
            command = self._command()
            if word == "!" and isinstance(command, Simple):
                return replace(command, is_negated=True)
            return command
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
            return self._function(without_expansions(name), line)
        return self._for(line)

    def _through(self, inner: tuple[str, ...], last: str, kind: str, line: int) -> Compound:
        """Read scripts separated by the inner words, up to the last word or the end of the text."""
        bodies = [self.body()]
        while self._reserved_word() in inner and self._reserved_word():
            self.at += len(self._reserved_word())
            bodies.append(self.body())
        if self._reserved_word() == last:
            self.at += len(last)
        return self._with_redirects(kind, tuple(bodies), line)

    def _for(self, line: int) -> Compound:
        words: list[Word] = []
        self.blanks()
        header: Simple | None = None
        if self.peek(2) == "((":
            is_forever = bool(_FOREVER.match(self.text, self.at))
            arithmetic = self._arithmetic(line)
            header = arithmetic if is_forever else None
            words += arithmetic.words
            name = ""
        else:
            words.append(Word((Variable("@", True),), line))
            name = without_expansions(self.word())
            self._newlines_and_blanks()
            if self._reserved_word() == "in":
                self.at += 2
                self.blanks()
                words.clear()
                while self.peek() and self.peek() not in ";\n&|()":
                    start = self.at
                    words.append(self.word())
                    self.blanks()
                    if self.at == start:
                        self.skip(1)
        self.separators()
        compound = self._body_of_for(line)
        if header is not None:
            # What the header counts is counted after each round.
            bodies = ((), *compound.bodies, (Item(((header,),)),))
            return Compound("while", bodies, line, redirects=compound.redirects)
        return Compound("for", compound.bodies, line, name, tuple(words), compound.redirects)

    def _body_of_for(self, line: int) -> Compound:
        if self._reserved_word() == "do":
            self.at += 2
            return self._through((), "done", "for", line)
        if self._reserved_word() == "{":
            self.at += 1
            return self._through((), "}", "for", line)
        return Compound("for", (), line)

    def _case(self, line: int) -> Compound:
        self.blanks()
        subject_start = self.at
        subject = self.word()
        subject_text = self.text[subject_start : self.at]
        self._newlines_and_blanks()
        if self._reserved_word() == "in":
            self.at += 2
        bodies: list[Script] = []
        while self.at < self.end:
            self.separators()
            if self._reserved_word() == "esac":
                self.at += 4
                break
            start = self.at
            self._pattern()
            bodies.append(self.body())
            if self.peek(2) == ";;":
                self.skip(3 if self.peek(3) == ";;&" else 2)
            elif self._reserved_word() in _CLOSERS and self._reserved_word() != "esac":
                break
            if self.at == start:
                self.skip(1)
        compound = self._with_redirects("case", tuple(bodies), line)
        return replace(compound, words=(subject,), subject=subject_text)

    def _pattern(self) -> None:
        """Skip `a|b)`."""
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
        """Read ((...)) as a command of this name, whose argument is each $(...) in it."""
        start = self.at
        stop = self.arithmetic_end(self.at + 2) if self.at < self.last_arithmetic else 0
        substitutions: tuple[Word, ...] = ()
        if not stop:
            self.skip(2)
        else:
            if script := self.substituted_scripts(self.at + 2, stop - 2):
                substitutions = (Word((Substitution(script, True, "0"),), line),)
            self.at = stop
        words = (Word((Text("(("),), line), *substitutions)
        return Simple(words, (), line, source=self.text[start : self.at])

    def _with_redirects(self, kind: str, bodies: tuple[Script, ...], line: int) -> Compound:
        redirects: list[Redirect] = []
        self.blanks()
        while self.is_at_redirect():
            redirects.append(self.redirect())
            self.blanks()
        return Compound(kind, bodies, line, redirects=tuple(redirects))

    def body(self) -> Script:
        return tuple(self._deeper(self.script) or ())

    def _reserved_word(self) -> str:
        """Return the reserved word at this place without reading it; empty if there is none."""
        match = _RESERVED.match(self.text, self.at)
        if not match:
            return ""
        next_char = self.text[match.end() : match.end() + 1]
        return match[0] if not next_char or next_char in META else ""

    def _simple(self) -> Simple | None:
        line, start = self.line(), self.at
        words: list[Word] = []
        redirects: list[Redirect] = []
        arrays: list[tuple[str, tuple[Word, ...]]] = []
        while True:
            self.blanks()
            if self.is_at_redirect():
                redirects.append(self.redirect())
            elif self.at >= self.end or self.peek() in "\n;&|)":
                break
            elif self.peek() == "(":
                arrays.append((without_expansions(words.pop()) if words else "", self._array()))
            else:
                words += self._words(is_first=not words)
        source = self.text[start : self.at]
        command = Simple(tuple(words), tuple(redirects), line, tuple(arrays), source)
        return command if words or redirects or arrays else None

    def _words(self, is_first: bool) -> list[Word]:
        """Read a word, or all words of [[ ... ]] if it is the first word of a command."""
        start = self.at
        word = self.word()
        if self.at == start:  # skip a character that cannot be read, so that parsing ends
            self.skip(1)
        return [word, *self._test()] if is_first and word.plain == "[[" else [word]

    def _test(self) -> list[Word]:
        """Read up to ]], where && and < are words. Without a ]] on the line, read nothing."""
        words: list[Word] = []
        stop = self.text.find("\n", self.at)
        if self.text.find("]]", self.at, self.end if stop < 0 else stop) < 0:
            return words
        while True:
            self.blanks()
            char = self.peek()
            if char in ("", "\n"):
                return words
            if char in META:
                words.append(Word((Text(char),), self.line()))
                self.skip(1)
                continue
            words.append(self.word())
            if words[-1].plain == "]]":
                return words

    def _array(self) -> tuple[Word, ...]:
        """Read the elements of name=( ... )."""
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
