"""Read the characters of a shell script: words, quotes, expansions, redirects, heredocs. Pure.

``parse`` reads the commands. Text that cannot be understood is kept as text; nothing is refused.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_right

from batchyard.doctor.shell.syntax_tree import (
    Heredoc,
    Piece,
    Redirect,
    Script,
    Substitution,
    Text,
    Variable,
    Word,
)

MAX_DEPTH = 24
META = " \t\n;&|<>()"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REDIRECT = re.compile(r"(\d*|&)(<<<|<<-|<<|<>|<&|>>|>\||>&|<|>)")
_BRACE_VARIABLE = re.compile(r"[!#]?([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]+)")
#: an index and an operator behind the name of a variable
_OPERATOR = re.compile(r"(\[[^\]]*\])?(:?[-=+?]|%%?|##?|//?|,,?|\^\^?|:)?")
#: characters in which the end of $((...)) is searched
MAX_ARITHMETIC = 2_000


class Reader(ABC):
    def __init__(self, text: str, first_line: int) -> None:
        self.text = text
        self.at = 0
        self.end = len(text)
        self.depth = 0
        self._first_line = first_line
        self._newlines = [i for i, c in enumerate(text) if c == "\n"]
        self._pending: list[Heredoc] = []
        #: the index of the last "))", so that it is not searched repeatedly
        self.last_arithmetic = text.rfind("))")

    @abstractmethod
    def body(self) -> Script:
        """Read commands up to the word or character that closes them."""

    @abstractmethod
    def inner(self, source: str, line: int) -> Script:
        """Return the commands of a text that is quoted in this one."""

    @abstractmethod
    def sibling(self, source: str, line: int) -> Reader:
        """Return a reader, one level deeper, for a part of the text."""

    # -- position ---------------------------------------------------------------------------------

    def line(self) -> int:
        return self._first_line + bisect_right(self._newlines, self.at - 1)

    def peek(self, length: int = 1) -> str:
        return self.text[self.at : self.at + length]

    def skip(self, count: int) -> None:
        self.at = min(self.end, self.at + count)

    def close(self, closer: str) -> None:
        if self.peek(len(closer)) == closer:
            self.skip(len(closer))

    def blanks(self) -> None:
        while self.at < self.end:
            if self.peek() in " \t\r":
                self.at += 1
            elif self.peek(2) == "\\\n":
                self.at += 2
            elif self.peek() == "#" and (self.at == 0 or self.text[self.at - 1] in META):
                stop = self.text.find("\n", self.at)
                self.at = self.end if stop < 0 else stop
            else:
                return

    def take_newline(self) -> None:
        """Read the end of a line, and the bodies of its heredocs, which follow it."""
        self.at += 1
        pending, self._pending = self._pending, []
        for heredoc in pending:
            self._read_heredoc(heredoc)

    def _read_heredoc(self, heredoc: Heredoc) -> None:
        heredoc.line = self.line()
        lines = []
        while self.at < self.end:
            stop = self.text.find("\n", self.at)
            stop = self.end if stop < 0 else stop
            line = self.text[self.at : stop]
            self.at = min(self.end, stop + 1)
            bare = line.lstrip("\t") if heredoc.strips_tabs else line
            if bare.rstrip("\r") == heredoc.delimiter:
                break
            lines.append(bare)
        heredoc.body = "\n".join(lines) + ("\n" if lines else "")
        if not heredoc.is_quoted and ("$" in heredoc.body or "`" in heredoc.body):
            pieces = self._read_pieces(heredoc.body, heredoc.line, True)
            heredoc.pieces = tuple(piece for piece in pieces if not isinstance(piece, Text))

    # -- redirects --------------------------------------------------------------------------------

    def is_at_redirect(self) -> bool:
        if self.peek(2) in ("<(", ">("):
            return False
        return bool(_REDIRECT.match(self.text, self.at))

    def redirect(self) -> Redirect:
        match = _REDIRECT.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        operator = match[2]
        if operator == ">" and self.peek() == ">":  # &>>
            self.skip(1)
            operator = ">>"
        self.blanks()
        is_process = self.peek(2) in ("<(", ">(")
        has_target = self.at < self.end and (self.peek() not in META or is_process)
        target = self.word() if has_target else None
        heredoc = None
        if target is not None and operator in ("<<", "<<-"):
            heredoc = self._expect_heredoc(target, operator == "<<-")
        return Redirect(operator if match[1] != "2" else f"2{operator}", target, heredoc)

    def _expect_heredoc(self, delimiter: Word, strips_tabs: bool) -> Heredoc:
        """Return a heredoc whose body is read at the end of the line."""
        is_quoted = any(isinstance(piece, Text) and piece.is_quoted for piece in delimiter.pieces)
        heredoc = Heredoc(without_expansions(delimiter), is_quoted, strips_tabs)
        self._pending.append(heredoc)
        return heredoc

    # -- words ------------------------------------------------------------------------------------

    def word(self) -> Word:
        line = self.line()
        pieces: list[Piece] = []
        if self.peek(2) in ("<(", ">("):
            is_file = self.peek() == "<"
            self.skip(2)
            pieces.append(self._substitution(")", is_file=is_file))
        while self.at < self.end and self.peek() not in META:
            self._piece(pieces)
        return Word(_merge_texts(pieces), line)

    def _piece(self, pieces: list[Piece]) -> None:
        char = self.peek()
        if char == "\\":
            if self.peek(2) != "\\\n":
                pieces.append(Text(self.text[self.at + 1 : self.at + 2], True))
            self.skip(2)
        elif char == "'":
            self._single(pieces)
        elif char == '"':
            self._double(pieces)
        elif char == "$":
            self._dollar(pieces, False)
        elif char == "`":
            self._backtick(pieces, False)
        else:
            pieces.append(Text(char))
            self.skip(1)

    def _single(self, pieces: list[Piece]) -> None:
        stop = self.text.find("'", self.at + 1)
        stop = self.end if stop < 0 else stop
        pieces.append(Text(self.text[self.at + 1 : stop], True))
        self.at = min(self.end, stop + 1)

    def _double(self, pieces: list[Piece]) -> None:
        self.skip(1)
        pieces.append(Text("", True))
        self._quoted_text(pieces, '"')
        self.skip(1)

    def _quoted_text(self, pieces: list[Piece], closer: str) -> None:
        while self.at < self.end and self.peek() != closer:
            char = self.peek()
            if char == "\\" and self.at + 1 < self.end:
                escaped = self.text[self.at + 1]
                if escaped != "\n":
                    text = escaped if escaped in '$`"\\' else "\\" + escaped
                    pieces.append(Text(text, True))
                self.skip(2)
            elif char == "$":
                self._dollar(pieces, True)
            elif char == "`":
                self._backtick(pieces, True)
            else:
                pieces.append(Text(char, True))
                self.skip(1)

    def _read_pieces(self, source: str, line: int, is_quoted: bool) -> tuple[Piece, ...]:
        """Return the pieces of a part of the text, such as a heredoc or an operand."""
        if not source:
            return ()
        if self.depth >= MAX_DEPTH:
            return (Text(source, True),)
        reader = self.sibling(source, line)
        pieces: list[Piece] = []
        if is_quoted:
            reader._quoted_text(pieces, "\0")
        while reader.at < reader.end:
            reader._piece(pieces)
        return _merge_texts(pieces)

    def _dollar(self, pieces: list[Piece], is_quoted: bool) -> None:
        next_char = self.text[self.at + 1 : self.at + 2]
        if self.peek(3) == "$((" and (stop := self.arithmetic_end(self.at + 3)):
            script = self.substituted_scripts(self.at + 3, stop - 2)
            pieces.append(Substitution(script, is_quoted, "0"))
            self.at = stop
        elif next_char == "(":
            self.skip(2)
            pieces.append(self._substitution(")", is_quoted))
        elif next_char == "{":
            self._brace(pieces, is_quoted)
        elif next_char in ("'", '"') and not is_quoted:
            self.skip(1)  # $'...' and $"...": read as the plain forms
        else:
            self._plain_variable(pieces, is_quoted)

    def _plain_variable(self, pieces: list[Piece], is_quoted: bool) -> None:
        """Read $name, or one of the shell's own parameters such as $1 and $@."""
        next_char = self.text[self.at + 1 : self.at + 2]
        if name := _NAME.match(self.text, self.at + 1):
            pieces.append(Variable(name[0], is_quoted))
            self.at = name.end()
        elif next_char and next_char in "0123456789@*#?$!-":
            pieces.append(Variable(next_char, is_quoted, joins=next_char == "*"))
            self.skip(2)
        else:
            pieces.append(Text("$", is_quoted))
            self.skip(1)

    def arithmetic_end(self, start: int) -> int:
        """Return the index behind the closing "))"; 0 if this is no arithmetic but ( ) in $( )."""
        if start > self.last_arithmetic:
            return 0
        depth = 2
        for i in range(start, min(self.end, start + MAX_ARITHMETIC)):
            depth += {"(": 1, ")": -1}.get(self.text[i], 0)
            if not depth:
                return i + 1 if self.text[i - 1] == ")" else 0
        return self.text.find("))", start) + 2

    def substituted_scripts(self, start: int, stop: int) -> Script:
        """Return the commands of all $(...) in this part of the text."""
        source = self.text[start:stop]
        if "$(" not in source and "`" not in source:
            return ()
        pieces = self._read_pieces(source, self.line(), True)
        return tuple(
            item for piece in pieces if isinstance(piece, Substitution) for item in piece.script
        )

    def _brace(self, pieces: list[Piece], is_quoted: bool) -> None:
        """Read ${...}."""
        start = self.at + 2
        end, is_closed = self._brace_end(start, is_quoted)
        inner = self.text[start : end - is_closed]
        self.at = end
        match = _BRACE_VARIABLE.match(inner)
        if match:
            pieces.append(self._variable(inner, match, is_quoted))
        else:
            pieces.append(Text("", is_quoted))

    def _brace_end(self, start: int, is_quoted: bool) -> tuple[int, bool]:
        """Return the index behind the } that closes a brace, and whether there is such a }."""
        depth, i = 1, start
        while i < self.end and depth:
            char = self.text[i]
            depth += {"{": 1, "}": -1}.get(char, 0)
            if char == "\\":
                i += 1
            elif char == '"' or (char == "'" and not is_quoted):
                stop = self.text.find(char, i + 1)
                i = stop if stop >= 0 else i
            i += 1
        return min(i, self.end), not depth

    def _variable(self, inner: str, match: re.Match[str], is_quoted: bool) -> Variable:
        """Return the variable of ${inner}; ``match`` is its name in ``inner``."""
        name = match[1]
        suffix = inner[match.end() :]
        form = _OPERATOR.match(suffix)
        assert form is not None  # both of its groups are optional
        index, operator = form[1] or "", form[2] or ""
        operand = suffix[form.end() :]
        operand_pieces = self._read_pieces(operand, self.line(), False)
        joins = name == "*" or index == "[*]"
        if inner.startswith("#") and inner != "#":  # the length of a value
            return Variable(f"#{name}", is_quoted, operator, operand_pieces, joins=joins)
        is_plain = not inner.startswith(("#", "!"))
        indirection = "!" if inner.startswith("!") else ""
        return Variable(
            name,
            is_quoted,
            operator or indirection,
            operand_pieces,
            is_array=is_plain and index in ("[@]", "[*]"),
            joins=joins,
            start=_slice_start(name, suffix),
        )

    def _backtick(self, pieces: list[Piece], is_quoted: bool) -> None:
        line = self.line()
        stop = self.at + 1
        while stop < self.end and self.text[stop] != "`":
            stop += 2 if self.text[stop] == "\\" else 1
        source = self.text[self.at + 1 : stop].replace("\\`", "`")
        self.at = min(self.end, stop + 1)
        if self.depth >= MAX_DEPTH:
            pieces.append(Text(source, True))
        else:
            pieces.append(Substitution(self.inner(source, line), is_quoted))

    def _substitution(
        self, closer: str, is_quoted: bool = False, is_file: bool = False
    ) -> Substitution:
        body = self.body()
        if self.peek() != closer:
            # A stray word such as `done`: skip to the closer, so that the text behind it is read.
            stop = self.text.find(closer, self.at)
            self.at = self.end if stop < 0 else stop
        self.close(closer)
        return Substitution(body, is_quoted, is_file=is_file)


def _merge_texts(pieces: list[Piece]) -> tuple[Piece, ...]:
    """Join neighbouring texts that are all quoted, or all not."""
    merged: list[Piece] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        if isinstance(piece, Text) and isinstance(last, Text) and piece.is_quoted == last.is_quoted:
            merged[-1] = Text(last.text + piece.text, last.is_quoted)
        else:
            merged.append(piece)
    return tuple(merged)


def _slice_start(name: str, suffix: str) -> int:
    """Return how many arguments ${@:2} skips; 0 without such a suffix."""
    match = re.match(r":([1-9])", suffix) if name in ("@", "*") else None
    return int(match[1]) - 1 if match else 0


def without_expansions(word: Word) -> str:
    """Return the text of a word with $ for each expansion."""
    return "".join(p.text if isinstance(p, Text) else "$" for p in word.pieces)
