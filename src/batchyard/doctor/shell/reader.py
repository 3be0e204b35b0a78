"""The characters of a shell script: blanks, words, quotes, expansions, redirects, heredocs. Pure.

``parse`` adds the commands. What cannot be understood is taken for text, and nothing is refused.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_right

from batchyard.doctor.shell.tree import (
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
#: what may stand behind the name: an index, and an operator
_OPERATOR = re.compile(r"(\[[^\]]*\])?(:?[-=+?]|%%?|##?|//?|,,?|\^\^?|:)?")
#: $((...)) is looked for so far
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
        #: where the last "))" stands, so that it is not looked for again and again
        self.last_arithmetic = text.rfind("))")

    @abstractmethod
    def body(self) -> Script:
        """The commands from here to whatever closes them."""

    @abstractmethod
    def inner(self, source: str, line: int) -> Script:
        """The commands of a text that was quoted."""

    @abstractmethod
    def sibling(self, source: str, line: int) -> Reader:
        """Another one, a level deeper, for a piece of the text."""

    # -- where we are -----------------------------------------------------------------------------------------

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
        """The end of a line is where the bodies of its heredocs begin."""
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
            inside = self._inside(heredoc.body, heredoc.line, True)
            heredoc.pieces = tuple(piece for piece in inside if not isinstance(piece, Text))

    # -- redirects --------------------------------------------------------------------------------------------

    def redirect_here(self) -> bool:
        if self.peek(2) in ("<(", ">("):
            return False
        return bool(_REDIRECT.match(self.text, self.at))

    def redirect(self) -> Redirect:
        match = _REDIRECT.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        fd, operator = match[1], match[2]
        if operator == ">" and self.peek() == ">":  # &>>
            self.skip(1)
            operator = ">>"
        self.blanks()
        has_target = self.at < self.end and (
            self.peek() not in META or self.peek(2) in ("<(", ">(")
        )
        target = self.word() if has_target else None
        heredoc = None
        if operator in ("<<", "<<-") and target is not None:
            is_quoted = any(isinstance(p, Text) and p.is_quoted for p in target.pieces)
            heredoc = Heredoc(raw(target), is_quoted, operator == "<<-")
            self._pending.append(heredoc)
        return Redirect(("2" if fd == "2" else "") + operator, target, heredoc)

    # -- words ------------------------------------------------------------------------------------------------

    def word(self) -> Word:
        line = self.line()
        pieces: list[Piece] = []
        if self.peek(2) in ("<(", ">("):
            is_file = self.peek() == "<"
            self.skip(2)
            pieces.append(self._substitution(")", is_file=is_file))
        while self.at < self.end and self.peek() not in META:
            self._piece(pieces)
        return Word(_merged(pieces), line)

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
        self._as_in_quotes(pieces, '"')
        self.skip(1)

    def _as_in_quotes(self, pieces: list[Piece], closer: str) -> None:
        while self.at < self.end and self.peek() != closer:
            char = self.peek()
            if char == "\\" and self.at + 1 < self.end:
                after = self.text[self.at + 1]
                if after != "\n":
                    pieces.append(Text(after if after in '$`"\\' else "\\" + after, True))
                self.skip(2)
            elif char == "$":
                self._dollar(pieces, True)
            elif char == "`":
                self._backtick(pieces, True)
            else:
                pieces.append(Text(char, True))
                self.skip(1)

    def _inside(self, source: str, line: int, is_quoted: bool) -> tuple[Piece, ...]:
        """The pieces of a text that stands inside of something else."""
        if self.depth >= MAX_DEPTH:
            return (Text(source, True),)
        reader = self.sibling(source, line)
        pieces: list[Piece] = []
        if is_quoted:
            reader._as_in_quotes(pieces, "\0")
        while reader.at < reader.end:
            reader._piece(pieces)
        return _merged(pieces)

    def _dollar(self, pieces: list[Piece], is_quoted: bool) -> None:
        after = self.text[self.at + 1 : self.at + 2]
        if self.peek(3) == "$((" and (stop := self.arithmetic_end(self.at + 3)):
            pieces.append(Substitution(self.scripts_in(self.at + 3, stop - 2), is_quoted, "0"))
            self.at = stop
        elif after == "(":
            self.skip(2)
            pieces.append(self._substitution(")", is_quoted))
        elif after == "{":
            self._braced(pieces, is_quoted)
        elif after in ("'", '"') and after and not is_quoted:
            self.skip(1)  # $'...' and $"...": read as the plain forms
        elif name := _NAME.match(self.text, self.at + 1):
            pieces.append(Variable(name[0], is_quoted))
            self.at = name.end()
        elif after and after in "0123456789@*#?$!-":
            pieces.append(Variable(after, is_quoted, joins=after == "*"))
            self.skip(2)
        else:
            pieces.append(Text("$", is_quoted))
            self.skip(1)

    def arithmetic_end(self, start: int) -> int:
        """Behind the "))" that closes what begins here; 0 where it is no arithmetic but ( ) in $( )."""
        if start > self.last_arithmetic:
            return 0
        depth = 2
        for i in range(start, min(self.end, start + MAX_ARITHMETIC)):
            depth += {"(": 1, ")": -1}.get(self.text[i], 0)
            if not depth:
                return i + 1 if self.text[i - 1] == ")" else 0
        return self.text.find("))", start) + 2

    def scripts_in(self, start: int, stop: int) -> Script:
        """The commands of all $(...) there."""
        source = self.text[start:stop]
        if "$(" not in source and "`" not in source:
            return ()
        pieces = self._inside(source, self.line(), True)
        return tuple(
            item for piece in pieces if isinstance(piece, Substitution) for item in piece.script
        )

    def _braced(self, pieces: list[Piece], is_quoted: bool) -> None:
        start = self.at + 2
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
        i = min(i, self.end)
        inner = self.text[start : i - 1 if not depth else i]
        self.at = i
        match = _BRACE_VARIABLE.match(inner)
        if not match:
            pieces.append(Text("", is_quoted))
            return
        rest = inner[match.end() :]
        form = _OPERATOR.match(rest)
        index, operator = (form[1] or "", form[2] or "") if form else ("", "")
        is_array = index in ("[@]", "[*]") and not inner.startswith(("#", "!"))
        joins = match[1] == "*" or index == "[*]"
        slice_ = re.match(r":([1-9])", rest) if match[1] in ("@", "*") else None
        behind = rest[form.end() :] if form else ""
        name = f"#{match[1]}" if inner.startswith("#") and inner != "#" else match[1]
        pieces.append(
            Variable(
                name,
                is_quoted,
                "!" if inner.startswith("!") and not operator else operator,
                self._inside(behind, self.line(), False) if behind else (),
                is_array,
                joins,
                int(slice_[1]) - 1 if slice_ else 0,
            )
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
        if (
            self.peek() != closer
        ):  # a stray word such as `done`: on to the closer, so that the rest is read
            stop = self.text.find(closer, self.at)
            self.at = self.end if stop < 0 else stop
        self.close(closer)
        return Substitution(body, is_quoted, is_file=is_file)


def _merged(pieces: list[Piece]) -> tuple[Piece, ...]:
    """Neighbouring texts of a kind as one."""
    found: list[Piece] = []
    for piece in pieces:
        last = found[-1] if found else None
        if isinstance(piece, Text) and isinstance(last, Text) and piece.is_quoted == last.is_quoted:
            found[-1] = Text(last.text + piece.text, last.is_quoted)
        else:
            found.append(piece)
    return tuple(found)


def raw(word: Word) -> str:
    return "".join(p.text if isinstance(p, Text) else "$" for p in word.pieces)
