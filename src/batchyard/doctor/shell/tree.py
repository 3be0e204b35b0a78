"""A shell script as a tree. Pure values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    text: str
    is_quoted: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """$name or ${name...}: ``operator`` is :- or % or ,, and so on, ``operand`` what stands behind it."""

    name: str
    is_quoted: bool = False
    operator: str = ""
    operand: tuple[Piece, ...] = ()
    #: ${name[@]}, ${name[*]}
    is_array: bool = False
    #: * and not @: all of them as one word
    joins: bool = False
    #: of ${@:2}: how many are left out
    start: int = 0


@dataclass(frozen=True, slots=True)
class Substitution:
    """$(...), `...`, <(...)."""

    script: Script
    is_quoted: bool = False
    #: what it comes to where that is plain: of $((...)), in which commands may stand
    text: str | None = None
    #: <(...), which comes to the name of a file
    is_file: bool = False


Piece = Text | Variable | Substitution


@dataclass(frozen=True, slots=True)
class Word:
    pieces: tuple[Piece, ...]
    line: int

    @property
    def plain(self) -> str | None:
        """The word where nothing in it is quoted or expanded, so that it can be a reserved one."""
        if (
            len(self.pieces) == 1
            and isinstance(self.pieces[0], Text)
            and not self.pieces[0].is_quoted
        ):
            return self.pieces[0].text
        return None


@dataclass(slots=True)
class Heredoc:
    """What follows <<END; filled in when the line is over."""

    delimiter: str
    is_quoted: bool
    strips_tabs: bool
    body: str = ""
    line: int = 0
    #: $(...) in the body
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Redirect:
    operator: str
    target: Word | None
    heredoc: Heredoc | None = None


@dataclass(frozen=True, slots=True)
class Simple:
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]
    line: int
    #: name=(words)
    arrays: tuple[tuple[str, tuple[Word, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Compound:
    """if, while, until, for, case, ( ), { }, coproc and functions."""

    kind: str
    #: the scripts inside, in the order in which they stand; of a loop the condition comes first
    bodies: tuple[Script, ...]
    line: int
    #: the variable of `for`, the name of a function
    name: str = ""
    #: what `for` goes through, `case` looks at
    words: tuple[Word, ...] = ()
    redirects: tuple[Redirect, ...] = ()


Command = Simple | Compound


@dataclass(frozen=True, slots=True)
class Item:
    """Pipelines joined by && and ||, up to ; & or the end of the line."""

    pipelines: tuple[tuple[Command, ...], ...]
    is_background: bool = False


Script = tuple[Item, ...]
